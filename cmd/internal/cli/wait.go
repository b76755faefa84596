package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) actionWaitCmd() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "wait ID...", Short: "Wait until actions have ended", Args: atLeastOne("ID"),
		Long:    "Wait until actions have ended, and list them. The exit code is 0 if all of them succeeded,\nand that of the command if there is one action, and its command exited.",
		Example: "  rota action wait 42\n  rota action wait 42 43 44 --timeout 10m",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, limit, errStillRunning)
				defer cancel()
			}
			return a.waitForActions(ctx, c, ids)
		}),
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "give up after this time; 0: never")
	return cmd
}

// errStillRunning ends a wait with a time limit.
var errStillRunning = errors.New("the time limit is over, and actions have not ended")

func (a *app) waitForActions(ctx context.Context, c *client.Client, ids []uint64) error {
	all := &rotav1.ListActionsResponse{}
	var rows [][]string
	failed := 0
	for _, id := range ids {
		act, err := c.Wait(ctx, id)
		if err != nil && errors.Is(context.Cause(ctx), errStillRunning) {
			err = fmt.Errorf("%w: %d of %d have ended", errStillRunning, len(rows), len(ids))
		}
		if err != nil {
			return err
		}
		if act.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED {
			failed++
		}
		all.Actions = append(all.Actions, act)
		rows = append(rows, actionRow(act))
	}
	if err := a.print(all, actionHeader, rows); err != nil {
		return err
	}
	if len(ids) == 1 && failed > 0 && all.Actions[0].GetResult().GetReason() == rotav1.EndReason_END_REASON_EXITED {
		return &codeError{int(all.Actions[0].Result.ExitCode), fmt.Errorf("action %d: %s", ids[0], resultText(all.Actions[0]))}
	}
	if failed > 0 {
		return &codeError{exitError, fmt.Errorf("%d of %d actions did not succeed", failed, len(ids))}
	}
	return nil
}
