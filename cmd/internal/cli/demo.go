package cli

import (
	"github.com/spf13/cobra"

	"rota/cmd/internal/demo"
)

func (a *app) demoCmd() *cobra.Command {
	var (
		f          demo.Options
		noReserved bool
	)
	cmd := &cobra.Command{
		Use: "demo", Short: "Watch a cluster run coding agents and lose its leader", Args: exactly(),
		Long: `Starts three servers and an agent on loopback, runs coding trajectories that
alternate thinking and real go build, vet and test commands, kills the leader
with SIGKILL half-way, starts it again, and accounts for every action. The same
trajectories also run with a core reserved for each as long as it lives, for
comparison: a trajectory's wait for its core counts for its first action. Then a
parallel test suite shows how many cores it gets when the machine is idle and
when it is not, once rota has learned how long it takes.

Takes about a minute on two cores and needs Go. Exits with 0 only if no
acknowledged action was lost, none ran twice, and all servers hold the same
state.`,
		Example: "  rota demo\n  rota demo --seed 7 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Reserved, f.Progress = !noReserved, a.err
			s, err := demo.Run(cmd.Context(), f)
			if err != nil {
				return err
			}
			if a.json() {
				err = writeJSON(a.out, s)
			} else {
				s.Write(a.out)
			}
			if err == nil && !s.OK() {
				return &codeError{code: exitError}
			}
			return err
		},
	}
	cmd.Flags().Uint64Var(&f.Seed, "seed", 1, "seed of the workload")
	cmd.Flags().IntVar(&f.Trajectories, "trajectories", 0, "trajectories in each of the two batches; 0: three for each core")
	cmd.Flags().BoolVar(&noReserved, "no-reserved", false, "skip the comparison with reserved cores")
	cmd.Flags().StringVar(&f.Dir, "dir", "", "folder of the data, kept (default: temporary)")
	cmd.Flags().BoolVar(&f.Keep, "keep", false, "keep the temporary folder")
	return cmd
}
