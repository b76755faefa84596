package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) actionSummaryCmd() *cobra.Command {
	var (
		req    rotav1.SummarizeActionsRequest
		labels []string
		since  time.Duration
		asCSV  bool
	)
	cmd := &cobra.Command{
		Use: "summary", Short: "Add up what actions took: time, CPU time, memory", Args: exactly(),
		Long: `Adds up the actions that the cluster still keeps. "core time" is the execution time
multiplied by the fewest cores of each action; an action that was given more cores held more.`,
		Example: "  rota action summary --label run=42\n  rota action summary --by task --csv\n  rota action summary --class pytest --since 1h",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if req.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if since > 0 {
				req.SubmittedSince = timestamppb.New(time.Now().Add(-since))
			}
			return a.summarize(ctx, c, &req, asCSV)
		}),
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&labels, "label", nil, "count only actions with this label, KEY=VALUE; repeat the flag for those with all of several labels")
	fs.StringVar(&req.Class, "class", "", "count only actions of this class")
	fs.StringVar(&req.GroupBy, "by", "", "label, for each of whose values there is a line")
	fs.DurationVar(&since, "since", 0, "count only actions that were submitted in the last time, such as 10m")
	a.csvFlag(cmd, &asCSV, "write comma-separated values, with times in seconds")
	return cmd
}

func (a *app) trajectorySummaryCmd() *cobra.Command {
	var asCSV bool
	cmd := &cobra.Command{
		Use: "summary ID", Short: "Add up what the actions of a trajectory took", Args: exactly("ID"),
		Example: "  rota trajectory summary 7\n  rota trajectory summary 7 --csv",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			got, err := call(ctx, a, c.Trajectories.GetTrajectory, &rotav1.GetTrajectoryRequest{Id: id})
			if err != nil {
				return err
			}
			return a.summarize(ctx, c, &rotav1.SummarizeActionsRequest{Namespace: got.Trajectory.Namespace, TrajectoryId: id}, asCSV)
		}),
	}
	a.csvFlag(cmd, &asCSV, "write comma-separated values, with times in seconds")
	return cmd
}

var summaryHeader = []string{"value", "actions", "succeeded", "failed", "running", "span", "queued", "ran", "cpu time", "core time", "gpu time", "memory peak"}

// summarize prints summaries. Without a namespace in the request, it is the one of the settings.
func (a *app) summarize(ctx context.Context, c *client.Client, req *rotav1.SummarizeActionsRequest, asCSV bool) error {
	if req.Namespace == "" {
		req.Namespace = a.settings.namespace
	}
	resp, err := call(ctx, a, c.Actions.SummarizeActions, req)
	if err != nil {
		return err
	}
	if resp.Truncated {
		a.say("there is too much to add up, and the oldest actions or further values are left out; use --since or --label")
	}
	times, bytes := totalTime(asCSV), formatSize
	if asCSV {
		bytes = func(n uint64) string { return strconv.FormatUint(n, 10) }
	}
	rows := make([][]string, 0, len(resp.Summaries))
	for _, s := range resp.Summaries {
		rows = append(rows, []string{
			s.Value, fmt.Sprint(s.Actions), fmt.Sprint(s.Succeeded), fmt.Sprint(s.Failed), fmt.Sprint(s.Running),
			times(s.Span), times(s.QueueTime), times(s.ExecTime), times(s.CpuTime),
			times(s.CoreTimeMin), times(s.GpuTimeMin), bytes(s.MemoryPeakBytes),
		})
	}
	if !asCSV {
		return a.print(resp, summaryHeader, rows)
	}
	return a.printCSV(summaryHeader, rows)
}
