package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) reportCmd() *cobra.Command {
	var (
		from, to, by string
		labels       []string
		asCSV        bool
	)
	cmd := &cobra.Command{
		Use: "report", Short: "Report what namespaces used in a range of time", Args: exactly(),
		Long: `Adds up the actions that ended in a range of time, for each namespace or for each value of a
label in it. Times are 2006-01-02, 2006-01-02T15:04:05Z, or a duration before now such as 24h. A day
begins at midnight UTC.

"reserved" is what the trajectories of these actions would have held if each had kept the most cores
that one of its actions asks for, from its opening to its end. "saved" is the part of it that rota
gave to others meanwhile. Both need the rows of the trajectories: those that are forgotten do not
count.

The report has what the cluster keeps of ended actions, and says so if the range began before that.
rota operator namespace usage counts everything since a namespace was created.`,
		Example: "  rota report\n  rota report --from 2026-07-01 --to 2026-08-01 --csv > july.csv\n  rota report --from 24h --by team --namespace research",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			req := &rotav1.SummarizeActionsRequest{Namespace: "*", ByNamespace: true, GroupBy: by}
			if a.settings.namespace != "" {
				req.Namespace = a.settings.namespace
			}
			if req.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			now := time.Now()
			if req.EndedSince, err = parseMoment("from", from, now); err != nil {
				return err
			}
			if req.EndedBefore, err = parseMoment("to", to, now); err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Actions.SummarizeActions, req)
			if err != nil {
				return err
			}
			a.warnOfGaps(req, resp)
			return a.writeReport(resp, asCSV)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&from, "from", "24h", "beginning of the range: a time, or a duration before now")
	fs.StringVar(&to, "to", "0s", "end of the range, which is not part of it")
	fs.StringVar(&by, "by", "", "label, for each of whose values there is a line; actions without it are left out")
	fs.StringArrayVar(&labels, "label", nil, "count only actions with this label, KEY=VALUE; repeat the flag for those with all of several labels")
	a.csvFlag(cmd, &asCSV, "write comma-separated values, with times in seconds")
	return cmd
}

// parseMoment reads a time, or a duration before now.
func parseMoment(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return timestamppb.New(now.Add(-d)), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, usageErrorf("--%s must be a time such as 2026-07-01 or 2026-07-01T15:00:00Z, or a duration before now such as 24h, is %q", flag, text)
}

// warnOfGaps says what is missing in a report.
func (a *app) warnOfGaps(req *rotav1.SummarizeActionsRequest, resp *rotav1.SummarizeActionsResponse) {
	if resp.Truncated {
		a.say("there is too much to add up, and the oldest actions or further values are left out; use a shorter range or --label")
	}
	if k := resp.KeptSince; k != nil && req.EndedSince.AsTime().Before(k.AsTime()) {
		a.say("the cluster may have forgotten actions that ended before %s: the report has what is kept of them", formatTime(k))
	}
}

var reportHeader = []string{"namespace", "value", "actions", "succeeded", "failed", "queued", "wall", "cpu time", "core time", "gpu time", "reserved", "saved"}

func (a *app) writeReport(resp *rotav1.SummarizeActionsResponse, asCSV bool) error {
	times := totalTime(asCSV)
	rows := make([][]string, 0, len(resp.Summaries))
	for _, s := range resp.Summaries {
		rows = append(rows, []string{
			s.Namespace, s.Value, fmt.Sprint(s.Actions), fmt.Sprint(s.Succeeded), fmt.Sprint(s.Failed),
			times(s.QueueTime), times(s.ExecTime), times(s.CpuTime), times(s.CoreTimeMin),
			times(s.GpuTimeMin), times(s.ReservedCoreTime), times(saved(s.ReservedCoreTime, s.TrajectoryCoreTimeMin)),
		})
	}
	if asCSV {
		return a.printCSV(reportHeader, rows)
	}
	return a.print(resp, reportHeader, rows)
}
