package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) actionCmd() *cobra.Command {
	return group("action", "See, follow, await, signal and cancel actions",
		a.reads(a.actionListCmd()), a.reads(a.actionGetCmd()), a.reads(a.actionSummaryCmd()), a.actionCancelCmd(), a.actionWaitCmd(), a.logsCmd("action logs"), a.actionSignalCmd(), a.actionWatchCmd())
}

func (a *app) actionListCmd() *cobra.Command {
	var (
		states []string
		labels []string
		since  time.Duration
		oldest bool
		limit  int
		req    rotav1.ListActionsRequest
	)
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List actions, the last submitted first", Args: exactly(),
		Example: "  rota action list --state queued,running\n  rota action list --trajectory 7 -o json\n" +
			"  rota action list --class pytest --since 10m --state failed\n  rota action list -n '*' --node node-3",
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := parseStates(states)
			if err != nil {
				return err
			}
			if req.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			req.Namespace, req.States, req.NewestFirst = a.settings.namespace, wanted, !oldest
			if since > 0 {
				req.SubmittedSince = timestamppb.New(time.Now().Add(-since))
			}
			return a.listActions(cmd.Context(), &req, limit)
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "list only actions in these states, such as queued,running")
	cmd.Flags().Uint64Var(&req.TrajectoryId, "trajectory", 0, "list only actions of this trajectory")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "list only actions with this label, KEY=VALUE; repeat the flag for those with all of several labels")
	cmd.Flags().StringVar(&req.Name, "name", "", "list only actions with this name")
	cmd.Flags().StringVar(&req.Class, "class", "", "list only actions of this class")
	cmd.Flags().StringVar(&req.Node, "node", "", "list only actions that run or have run last on this node, or wait for it")
	cmd.Flags().DurationVar(&since, "since", 0, "list only actions that were submitted in the last time, such as 10m")
	cmd.Flags().BoolVar(&oldest, "oldest-first", false, "list in the order of submission")
	cmd.Flags().IntVar(&limit, "limit", 1000, "list at most this many actions; 0: all")
	words(cmd, "state", stateWords()...)
	return cmd
}

func (a *app) listActions(ctx context.Context, req *rotav1.ListActionsRequest, limit int) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	all := &rotav1.ListActionsResponse{}
	for {
		req.PageSize = pageSize(limit, len(all.Actions))
		page, err := call(ctx, a, c.Actions.ListActions, req)
		if err != nil {
			return err
		}
		all.Actions = append(all.Actions, page.Actions...)
		all.Revision, all.NextPageToken = page.Revision, page.NextPageToken
		req.PageToken = page.NextPageToken
		if page.NextPageToken == "" || (limit > 0 && len(all.Actions) >= limit) {
			break
		}
	}
	rows := make([][]string, 0, len(all.Actions))
	for _, act := range all.Actions {
		rows = append(rows, actionRow(act))
	}
	if all.NextPageToken != "" {
		a.say("there are more actions than --limit allows; raise --limit or use --limit 0")
	}
	return a.print(all, actionHeader, rows)
}

// actionHeader names the columns of actionRow.
var actionHeader = []string{"id", "state", "node", "cpus", "submitted", "queued", "ran", "exit", "command"}

func actionRow(act *rotav1.Action) []string {
	return []string{
		strconv.FormatUint(act.Id, 10), stateText(act), act.Node, formatCPUs(act.Cpus),
		formatTime(act.SubmitTime), formatAge(act.SubmitTime, act.StartTime), execText(act), exitText(act), commandText(act, 60),
	}
}

func (a *app) actionGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show an action, and what it waits for", Args: exactly("ID"),
		Example: "  rota action get 42\n  rota action get 42 -o json",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			resp, err := call(ctx, a, c.Actions.GetAction, &rotav1.GetActionRequest{Id: id})
			if err != nil {
				return err
			}
			return a.printFields(resp.Action, actionFields(resp.Action))
		}),
	}
}

// startText says when an action would start, or why that is not known.
func startText(e *rotav1.StartEstimate) string {
	if e.GetUnknownReason() != "" {
		return "unknown: " + e.UnknownReason
	}
	return estimateText(e)
}

// workName is the name of the field with commandText.
func workName(act *rotav1.Action) string {
	if act.GetSpec().GetHttp() != nil {
		return "http call"
	}
	return "command"
}

func actionFields(act *rotav1.Action) []field {
	fields := []field{
		{"action", strconv.FormatUint(act.Id, 10)},
		{"name", act.GetSpec().GetName()},
		{"namespace", act.Namespace},
		{"labels", labelsText(act.GetSpec().GetLabels())},
		{"trajectory", optionalID(act.GetSpec().GetTrajectoryId())},
		{"gang", gangText(act)},
		{workName(act), commandText(act, 0)},
		{"state", stateText(act)},
		{"waiting for", strings.TrimPrefix(act.WaitingFor, "waits for ")},
		{"would start", startText(act.Estimate)},
		{"node", act.Node},
		{"cpus", formatCPUs(act.Cpus)},
		{"cores", act.CoresReason},
		{"gpus", formatCPUs(act.Gpus)},
		{"set-up", setUpText(act)},
		{"attempt", optionalID(uint64(act.Attempt))},
		{"submitted", formatTime(act.SubmitTime)},
		{"started", formatTime(act.StartTime)},
		{"ended", formatTime(act.EndTime)},
		{"queued for", formatAge(act.SubmitTime, act.StartTime)},
		{"used", usageText(act)},
	}
	r := act.Result
	if r == nil {
		return fields
	}
	return append(fields,
		field{"ran for", execText(act)},
		field{"result", resultText(act)},
		field{"cpu time", formatDuration(r.GetCpuTime().AsDuration())},
		field{"memory peak", formatSize(r.MemoryPeakBytes)},
		field{"stdout", block(string(r.StdoutTail))},
		field{"stderr", block(string(r.StderrTail))},
	)
}

func (a *app) actionCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID...", Short: "Cancel queued or running actions", Args: atLeastOne("ID"),
		Example: "  rota action cancel 42 43",
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Actions.CancelActions, &rotav1.CancelActionsRequest{Ids: ids})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"canceled", fmt.Sprint(resp.Canceled)}})
		},
	}
}

// parseID reads the ID of an action or a trajectory.
func parseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return 0, usageErrorf("%q is not an ID; give a number of 1 or more", text)
	}
	return id, nil
}

func parseIDs(args []string) ([]uint64, error) {
	ids := make([]uint64, len(args))
	for i, arg := range args {
		id, err := parseID(arg)
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}

func optionalID(id uint64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatUint(id, 10)
}
