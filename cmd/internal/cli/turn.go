package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const operationPrefix = "OPERATION_"

func (a *app) turnCmd() *cobra.Command {
	return group("turn", "Acquire turns on node groups, and list turns", a.turnRunCmd(), a.reads(a.turnListCmd()), a.reads(a.turnGetCmd()))
}

// turnFlags are the flags of a turn.
type turnFlags struct {
	deployment, operation string
	step                  uint64
	expect, limit         time.Duration
	hook                  string
	preemptible           bool
}

func (a *app) turnRunCmd() *cobra.Command {
	var f turnFlags
	cmd := &cobra.Command{
		Use: "run --deployment JOB/DEPLOYMENT [flags] -- COMMAND [ARG...]", Short: "Wait for a turn, and run a command while the turn is held",
		Long: `Waits for a turn of the deployment on its node group, runs the command here as a child,
and yields the turn when the command ends. The command finds ROTA_TURN_ID,
ROTA_TURN_TOKEN, ROTA_TURN_STEP and ROTA_TURN_GROUP in its environment. The token only
grows, so storage can refuse the tokens of earlier holders. If another deployment was on
the group before, sh runs the set-up hook first, and rota measures its duration.

A lease protects the turn. If rota cannot renew the lease in time, it kills all processes
of the command: another turn may have the group. Do the step again. If the turn is asked
to stop, the processes get SIGTERM. They may continue as long as the lease is renewed.

If standard input, output and error are a terminal, the command has it: it can read it, and Ctrl-C and
Ctrl-\ go to it. Ctrl-Z suspends the command and rota, so the lease is not renewed. If the lease has run
out when the shell continues them, the turn is lost. With a pipe, do not suspend rota: its command would
go on without a lease.

rota turn run exits with the code of the command, with 128 plus the signal that ended the
command, with 126 if the command could not be started, with 125 if rota failed, and with
123 if the turn was lost.`,
		Example: `  rota turn run --deployment job-a/actor --operation forward-backward --step 12 -- ./train.sh
  rota turn run --deployment job-a/rollout --operation generate --expect 40s --set-up-hook ./load.sh -- ./generate.sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("nothing to run; write: rota turn run --deployment JOB/DEPLOYMENT -- COMMAND [ARG...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(a.settings.namespace)
			if err != nil {
				return err
			}
			return a.runTurn(cmd.Context(), req, f.hook, args)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.deployment, "deployment", "", "job and deployment of the turn, such as job-a/actor")
	fs.StringVar(&f.operation, "operation", "custom", "operation of the turn: "+strings.Join(operationWords(), ", "))
	fs.Uint64Var(&f.step, "step", 0, "training step; a higher step begins a new cycle; 0: the current step")
	fs.DurationVar(&f.expect, "expect", 0, "expected duration, such as 40s (default: the duration of the last turn)")
	fs.StringVar(&f.hook, "set-up-hook", "", "command for sh that brings the deployment onto the group")
	fs.DurationVar(&f.limit, "limit", 0, "ask the turn to stop after this time; 0: never")
	fs.BoolVar(&f.preemptible, "preemptible", false, "rota may ask the turn to stop when another turn should go first")
	words(cmd, "operation", operationWords()...)
	noInterspersed(fs)
	return cmd
}

func (f *turnFlags) request(namespace string) (*rotav1.AcquireTurnRequest, error) {
	if !strings.Contains(f.deployment, "/") {
		return nil, usageErrorf("--deployment %q is not JOB/DEPLOYMENT, such as job-a/actor", f.deployment)
	}
	if !slices.Contains(operationWords(), f.operation) {
		return nil, usageErrorf("unknown --operation %q; operations are %s", f.operation, strings.Join(operationWords(), ", "))
	}
	name := operationPrefix + strings.ToUpper(strings.ReplaceAll(f.operation, "-", "_"))
	req := &rotav1.AcquireTurnRequest{
		Namespace: namespace, Deployment: f.deployment, Operation: rotav1.Operation(rotav1.Operation_value[name]),
		Step: f.step, Preemptible: f.preemptible,
	}
	if f.expect != 0 {
		req.Expect = durationpb.New(f.expect)
	}
	if f.limit != 0 {
		req.Limit = durationpb.New(f.limit)
	}
	return req, nil
}

// operationWord writes OPERATION_FORWARD_BACKWARD as forward-backward.
func operationWord(o rotav1.Operation) string {
	return strings.ReplaceAll(enumWord(o, operationPrefix), "_", "-")
}

func operationWords() (all []string) {
	for i := 1; i < len(rotav1.Operation_name); i++ {
		all = append(all, operationWord(rotav1.Operation(i)))
	}
	return all
}

func (a *app) turnListCmd() *cobra.Command {
	var job string
	var ended bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List turns that wait or are held", Args: exactly(),
		Example: "  rota turn list --job job-a --ended",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListTurnsResponse{}
			req := &rotav1.ListTurnsRequest{Namespace: a.settings.namespace, Job: job, IncludeEnded: ended, PageSize: 1000}
			err := pages(ctx, a, c.Turns.ListTurns, req, &req.PageToken, func(page *rotav1.ListTurnsResponse) {
				all.Turns = append(all.Turns, page.Turns...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Turns))
			for _, t := range all.Turns {
				rows = append(rows, []string{
					fmt.Sprint(t.Id), t.Job + "/" + t.Deployment, operationWord(t.Operation), fmt.Sprint(t.Step), turnState(t),
					orDash(t.Group), fmt.Sprint(t.Token), formatAge(t.ArriveTime, t.GrantTime), formatAge(t.GrantTime, t.EndTime),
				})
			}
			return a.print(all, []string{"id", "deployment", "operation", "step", "state", "group", "token", "waited", "held"}, rows)
		}),
	}
	cmd.Flags().StringVar(&job, "job", "", "list only turns of this job")
	cmd.Flags().BoolVar(&ended, "ended", false, "list ended turns too")
	return cmd
}

func (a *app) turnGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one turn", Args: exactly("ID"), Example: "  rota turn get 7",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			resp, err := call(ctx, a, c.Turns.GetTurn, &rotav1.GetTurnRequest{TurnId: id})
			if err != nil {
				return err
			}
			return a.printTurn(resp.Turn)
		}),
	}
}

func (a *app) printTurn(t *rotav1.Turn) error {
	flag := func(name string, yes bool) field {
		if yes {
			return field{name, "yes"}
		}
		return field{name, ""}
	}
	return a.printFields(t, []field{
		{"id", fmt.Sprint(t.Id)}, {"deployment", t.Namespace + "/" + t.Job + "/" + t.Deployment}, {"operation", operationWord(t.Operation)},
		{"state", turnState(t)}, {"step", fmt.Sprint(t.Step)}, {"group", t.Group}, {"token", fmt.Sprint(t.Token)},
		{"expected", optionalDuration(t.Expect)}, {"set-up", optionalDuration(t.SetUp)}, flag("set-up needed", t.SetUpNeeded),
		{"limit", optionalDuration(t.Limit)}, flag("preemptible", t.Preemptible),
		{"asked for", formatTime(t.ArriveTime)}, {"granted", formatTime(t.GrantTime)}, {"ready", formatTime(t.ReadyTime)},
		{"ended", formatTime(t.EndTime)}, {"message", t.Message}, {"waiting for", strings.TrimPrefix(t.WaitingFor, "waits for ")},
	})
}

func turnState(t *rotav1.Turn) string {
	word := enumWord(t.State, "TURN_STATE_")
	if t.Stop && t.State == rotav1.TurnState_TURN_STATE_HELD {
		return word + " (to stop)"
	}
	return word
}
