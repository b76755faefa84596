package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rota/internal/sim/rollouts"
)

func (a *app) simRolloutsTrainingCmd() *cobra.Command {
	var (
		f      simRolloutsFlags
		policy string
		loop   rollouts.Loop
	)
	cmd := &cobra.Command{
		Use: "training", Short: "Compare synchronous training with an asynchronous bound", Args: exactly(),
		Long: `Simulates loops of rollouts and training. In the synchronous loop all GPUs generate, and then all of
them train. In the asynchronous loop the GPUs of some workers train while the others generate, and
a trajectory that began more than --bound versions ago is aborted (RollArt). Training is taken to be
20 % of a synchronous step. The ratio is how much longer a synchronous step takes.`,
		Example: "  rota sim rollouts training\n  rota sim rollouts training --bound 2 --sweep task=coding,search,math --seeds 3",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.rolloutSetup(cmd)
			if err != nil {
				return simRolloutsError(err)
			}
			o := rollouts.Options{Policies: []string{policy}, Seeds: f.seeds}
			if o.Axes, err = f.axes(s.Pool != nil); err != nil {
				return simRolloutsError(err)
			}
			all, err := rollouts.CompareTraining(cmd.Context(), s, loop, o)
			if err != nil {
				return simRolloutsError(err)
			}
			if a.json() {
				return writeJSON(a.out, struct {
					Simulated bool                `json:"simulated"`
					Policy    string              `json:"policy"`
					Bound     int64               `json:"bound"`
					Trainers  int64               `json:"trainers"`
					Points    []*rollouts.Trained `json:"points"`
				}{true, policy, loop.Bound, loop.Trainers, all})
			}
			title := fmt.Sprintf("simulated: training, model %s, batch %d, workers %d, trainers %d, %s, bound %d, seeds %d to %d", s.Model, s.Batch, s.Workers, loop.Trainers, policy, loop.Bound, s.Seed, s.Seed+uint64(f.seeds)-1)
			return a.printSim(&f.simFlags, title, append(sweptNames(o.Axes), "rollout s", "train s", "step s", "asynchronous s", "ratio", "aborted %"), trainingRows(all))
		},
	}
	f.addRolloutsTo(cmd.Flags())
	cmd.Flags().StringVar(&policy, "policy", "least-load", "policy, one of "+strings.Join(rollouts.Baselines(), ", "))
	cmd.Flags().Int64Var(&loop.Trainers, "trainers", 3, "workers whose GPUs train in the asynchronous loop")
	cmd.Flags().Int64Var(&loop.Bound, "bound", 1, "versions after which a trajectory is too old")
	return cmd
}

func sweptNames(axes []rollouts.Axis) (out []string) {
	for _, axis := range axes {
		out = append(out, axis.Name)
	}
	return out
}

func trainingRows(all []*rollouts.Trained) (rows [][]string) {
	for _, t := range all {
		aborted, begun := t.Median(func(r *rollouts.Training) int64 { return r.Aborted }), t.Median(func(r *rollouts.Training) int64 { return r.Begun })
		rows = append(rows, append(append([]string(nil), t.At...),
			seconds(t.Median(func(r *rollouts.Training) int64 { return r.RolloutNS })),
			seconds(t.Median(func(r *rollouts.Training) int64 { return r.TrainNS })),
			seconds(t.Median(func(r *rollouts.Training) int64 { return r.SyncNS })),
			seconds(t.Median(func(r *rollouts.Training) int64 { return r.AsyncNS })),
			ranged(t.Ratio), percentOf(aborted, begun)))
	}
	return rows
}
