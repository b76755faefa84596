package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) rolloutAdviseCmd() *cobra.Command {
	var train uint32
	cmd := &cobra.Command{
		Use: "advise POLICY --train-gpus N", Short: "Say how many GPUs should train and how many should generate", Args: exactly("POLICY"),
		Long: `Compares how long the trainer of a policy works on a step with how long it waits for the next batch,
and says how the GPUs should be divided. Rollouts have the GPUs of the policy's workers. The steps
are measured from the times of batches and versions; the last 16 count most.`,
		Example: "  rota rollout advise model-7b --train-gpus 32",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if train == 0 {
				return usageErrorf("how many GPUs train is not given; give --train-gpus N")
			}
			r, err := call(ctx, a, c.Workers.AdviseRatio, &rotav1.AdviseRatioRequest{Policy: args[0], TrainGpus: train})
			if err != nil {
				return err
			}
			split := func(s *rotav1.GPUSplit) string {
				return fmt.Sprintf("%d train, %d generate, a step takes %.1f s", s.GetTrainGpus(), s.GetRolloutGpus(), s.GetStep().AsDuration().Seconds())
			}
			return a.printFields(r, []field{
				{"policy", args[0]}, {"measured", fmt.Sprintf("%d steps", r.Steps)}, {"now", split(r.Now)}, {"best", split(r.Best)},
				{"trainer waits", fmt.Sprintf("%d %% of a step", r.WaitPercent)}, {"why", r.Reason},
			})
		}),
	}
	cmd.Flags().Uint32Var(&train, "train-gpus", 0, "GPUs of the trainer")
	return cmd
}
