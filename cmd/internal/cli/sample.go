package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) sampleCmd() *cobra.Command {
	return group("sample", "Put the samples of trajectories into the buffer", a.samplePutCmd())
}

func (a *app) samplePutCmd() *cobra.Command {
	req := &rotav1.PutSampleRequest{}
	cmd := &cobra.Command{
		Use: "put TRAJECTORY", Short: "Put the sample of a trajectory into the buffer, and close the trajectory", Args: exactly("TRAJECTORY"),
		Long: `Puts the sample of a trajectory that was opened for a rollout into the buffer. Each trajectory
makes one sample: put again, nothing changes. The exit code is 1 if the sample was not
accepted, because the trajectory began too many versions ago, its group is complete, or it
has ended.`,
		Example: "  rota sample put 7 --reward 0.5 --tokens 1234 --reference s3://samples/7",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			req.TrajectoryId = id
			resp, err := call(ctx, a, c.Rollouts.PutSample, req)
			if err != nil {
				return err
			}
			state := enumWord(resp.State, "ROLLOUT_MEMBER_STATE_")
			if err := a.printFields(resp, []field{{"trajectory", strconv.FormatUint(id, 10)}, {"accepted", strconv.FormatBool(resp.Accepted)}, {"state", state}}); err != nil || resp.Accepted {
				return err
			}
			return &codeError{exitError, fmt.Errorf("the sample of trajectory %d was not accepted: the trajectory is %s", id, state)}
		}),
	}
	fs := cmd.Flags()
	fs.Float64Var(&req.Reward, "reward", 0, "reward of the sample")
	fs.Uint64Var(&req.Tokens, "tokens", 0, "number of its tokens")
	fs.StringVar(&req.Reference, "reference", "", "where its bytes are, in words of the trainer")
	fs.BoolVar(&req.KeepOpen, "keep-open", false, "leave the trajectory open")
	return cmd
}

func (a *app) batchCmd() *cobra.Command {
	return group("batch", "Take batches of samples for training", a.batchGetCmd())
}

func (a *app) batchGetCmd() *cobra.Command {
	var wait time.Duration
	req := &rotav1.GetBatchRequest{}
	cmd := &cobra.Command{
		Use: "get --policy POLICY --step N --groups N", Short: "Wait for complete groups and give them to a step of training", Args: exactly(),
		Long: `Gives the oldest complete groups of a policy to a step of training, each group to one step.
For the same step the answer is the same again, so a trainer that was killed asks again.
The next step ends the batch.`,
		Example: "  rota batch get --policy model-7b --step 1 --groups 64 --wait 10m -o json",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if req.Policy == "" || req.Step == 0 || req.Groups == 0 {
				return usageErrorf("a batch is of a policy, a step and groups; give --policy NAME, --step N and --groups N")
			}
			req.Wait = durationpb.New(wait)
			ctx, cancel := context.WithTimeout(ctx, wait+a.settings.timeout)
			defer cancel()
			resp, err := c.GetBatch(ctx, req)
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Samples))
			for _, s := range resp.Samples {
				rows = append(rows, []string{strconv.FormatUint(s.TrajectoryId, 10), strconv.FormatUint(s.RolloutId, 10), fmt.Sprint(s.Group), fmt.Sprint(s.Version),
					strconv.FormatFloat(s.Reward, 'g', -1, 64), fmt.Sprint(s.Tokens), s.Reference})
			}
			return a.print(resp, []string{"trajectory", "rollout", "group", "version", "reward", "tokens", "reference"}, rows)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&req.Policy, "policy", "", "policy that is trained")
	fs.Uint64Var(&req.Step, "step", 0, "step of training: the last one again, or the next one")
	fs.Uint32Var(&req.Groups, "groups", 0, "number of groups in the batch")
	fs.DurationVar(&wait, "wait", 0, "how long to wait for complete groups; 0: not at all")
	return cmd
}
