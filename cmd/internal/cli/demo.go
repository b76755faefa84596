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
		Use: "demo", Short: "Show a cluster that runs coding agents and loses its leader", Args: exactly(),
		Long: `Starts three servers and an agent on loopback, and runs coding trajectories. The
trajectories alternate thinking with real go build, vet and test commands. In the first
batch, the demo kills the leader with SIGKILL and starts it again. At the end, it accounts
for every action.

For comparison, the same trajectories also run with a reserved core for the life of each
trajectory. A trajectory's wait for its core then counts for its first action. Both ways
take turns in small batches, so that noise of the machine hits both. The same work,
measured before each turn, shows how noisy it was.

Then a parallel test suite runs on an idle machine and on a busy one. rota has learned
its duration, and the demo shows how many cores the suite gets. Last, suites that run
grow and shrink as others come and go: the demo draws a letter for each core, whenever
that changes.

The demo takes about a minute on two cores and needs Go, whose build cache it uses. After
"make build" much is in there. The exit code is 0 only if no acknowledged action was lost,
no action ran twice, and all servers have the same state.`,
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
	cmd.Flags().IntVar(&f.Trajectories, "trajectories", 0, "trajectories of each batch; 0: two for each core")
	cmd.Flags().BoolVar(&noReserved, "no-reserved", false, "skip the comparison with reserved cores")
	cmd.Flags().StringVar(&f.Dir, "dir", "", "folder of the data, not removed at the end (default: a temporary folder)")
	cmd.Flags().BoolVar(&f.Keep, "keep", false, "do not remove the temporary folder at the end")
	return cmd
}
