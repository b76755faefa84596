package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) trajectoryListCmd() *cobra.Command {
	var (
		req            rotav1.ListTrajectoriesRequest
		states, labels []string
		since          time.Duration
		oldest         bool
		limit          int
	)
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List open trajectories, the last opened first", Args: exactly(),
		Example: "  rota trajectory list --ended\n  rota trajectory list --label run=42 --since 1h\n" +
			"  rota trajectory list --name django- --state closed,lost\n  rota trajectory list -n '*' --node node-3",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) (err error) {
			if req.States, err = parseTrajectoryStates(states); err != nil {
				return err
			}
			if req.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			req.Namespace, req.NewestFirst = a.settings.namespace, !oldest
			if since > 0 {
				req.OpenedSince = timestamppb.New(time.Now().Add(-since))
			}
			return a.listTrajectories(ctx, c, &req, limit)
		}),
	}
	fs := cmd.Flags()
	fs.BoolVar(&req.IncludeEnded, "ended", false, "list closed and lost trajectories too")
	fs.StringSliceVar(&states, "state", nil, "list only trajectories in these states, such as pending,open")
	fs.StringArrayVar(&labels, "label", nil, "list only trajectories with this label, KEY=VALUE; repeat the flag for those with all of several labels")
	fs.StringVar(&req.NamePrefix, "name", "", "list only trajectories whose name begins with this")
	fs.StringVar(&req.Node, "node", "", "list only trajectories that live or lived on this node")
	fs.DurationVar(&since, "since", 0, "list only trajectories that were opened in the last time, such as 10m")
	fs.BoolVar(&oldest, "oldest-first", false, "list in the order of opening")
	fs.IntVar(&limit, "limit", 1000, "list at most this many trajectories; 0: all")
	words(cmd, "state", trajectoryStateWords()...)
	return cmd
}

func (a *app) listTrajectories(ctx context.Context, c *client.Client, req *rotav1.ListTrajectoriesRequest, limit int) error {
	all := &rotav1.ListTrajectoriesResponse{}
	for {
		req.PageSize = pageSize(limit, len(all.Trajectories))
		page, err := call(ctx, a, c.Trajectories.ListTrajectories, req)
		if err != nil {
			return err
		}
		all.Trajectories = append(all.Trajectories, page.Trajectories...)
		all.NextPageToken, req.PageToken = page.NextPageToken, page.NextPageToken
		if page.NextPageToken == "" || limit > 0 && len(all.Trajectories) >= limit {
			break
		}
	}
	rows := make([][]string, 0, len(all.Trajectories))
	for _, t := range all.Trajectories {
		rows = append(rows, []string{strconv.FormatUint(t.Id, 10), trajectoryState(t), t.Node, formatSize(t.MemoryBytes),
			fmt.Sprint(t.LiveActions), formatTime(t.OpenTime), formatTime(t.EndTime), t.Name, labelsText(t.Labels)})
	}
	if all.NextPageToken != "" {
		a.say("there are more trajectories than --limit allows; raise --limit or use --limit 0")
	}
	return a.print(all, []string{"id", "state", "node", "memory", "live", "opened", "ended", "name", "labels"}, rows)
}

// pageSize is how many rows the next page of a list may have; 0 is no limit.
func pageSize(limit, listed int) uint32 {
	if limit > 0 {
		return uint32(min(1000, limit-listed))
	}
	return 1000
}

const trajectoryStatePrefix = "TRAJECTORY_STATE_"

func trajectoryStateWords() []string {
	var list []string
	for n, name := range rotav1.TrajectoryState_name {
		if n != 0 {
			list = append(list, strings.ToLower(strings.TrimPrefix(name, trajectoryStatePrefix)))
		}
	}
	slices.Sort(list)
	return list
}

func parseTrajectoryStates(texts []string) ([]rotav1.TrajectoryState, error) {
	var states []rotav1.TrajectoryState
	for _, text := range texts {
		n, ok := rotav1.TrajectoryState_value[trajectoryStatePrefix+strings.ToUpper(text)]
		if !ok || n == 0 {
			return nil, usageErrorf("unknown state %q; states are %s", text, strings.Join(trajectoryStateWords(), ", "))
		}
		states = append(states, rotav1.TrajectoryState(n))
	}
	return states, nil
}

// parseLabels reads KEY=VALUE; nil without any.
func parseLabels(texts []string) (map[string]string, error) {
	var labels map[string]string
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usageErrorf("--label %q is not KEY=VALUE", text)
		}
		if other, twice := labels[key]; twice && other != value {
			return nil, usageErrorf("--label %s has two values, %q and %q; give one", key, other, value)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
	}
	return labels, nil
}

// labelsText says "run=42,zone=a".
func labelsText(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, ",")
}
