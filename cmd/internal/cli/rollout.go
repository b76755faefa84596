package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) rolloutCmd() *cobra.Command {
	return group("rollout", "Create, close and see rollouts: prompt groups whose trajectories make samples for training",
		a.rolloutCreateCmd(), a.reads(a.rolloutListCmd()), a.reads(a.rolloutGetCmd()), a.reads(a.rolloutWatchCmd()), a.reads(a.rolloutExplainCmd()), a.rolloutCloseCmd(), a.reads(a.rolloutAdviseCmd()))
}

func (a *app) rolloutCreateCmd() *cobra.Command {
	spec := &rotav1.RolloutSpec{}
	cmd := &cobra.Command{
		Use: "create --policy POLICY --groups N --samples N", Short: "Create a rollout, for whose groups trajectories are opened then", Args: exactly(),
		Long: `Declares prompt groups. Open a trajectory for each sample: rota trajectory open --rollout ID
--group N. A group is complete when it has so many samples; trajectories beyond these are
closed then. A trajectory that began more versions of the policy ago than --staleness is
closed, and its sample is dropped.`,
		Example: "  id=$(rota rollout create --policy model-7b --groups 64 --samples 8 --redundant 2 --staleness 1 -o json | jq -r .id)\n" +
			"  rota trajectory open --rollout $id --group 0",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if spec.Policy == "" || spec.Groups == 0 || spec.SamplesPerGroup == 0 {
				return usageErrorf("a rollout needs a policy, groups and samples; give --policy NAME, --groups N and --samples N")
			}
			r, err := c.CreateRollout(ctx, &rotav1.CreateRolloutRequest{Namespace: a.settings.namespace, Spec: spec})
			if err != nil {
				return err
			}
			return a.printRollout(r, r, nil)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&spec.Name, "name", "", "free text for humans")
	fs.StringVar(&spec.Policy, "policy", "", "policy that the samples are for, such as the name of the model")
	fs.Uint32Var(&spec.Groups, "groups", 0, "number of prompt groups; they are numbered from 0")
	fs.Uint32Var(&spec.SamplesPerGroup, "samples", 0, "samples that complete a group")
	fs.Uint32Var(&spec.Redundant, "redundant", 0, "trajectories that a group may have beyond these; the slowest are closed")
	fs.Uint32Var(&spec.Staleness, "staleness", 0, "number of versions before the current one with which a trajectory may have begun")
	return cmd
}

func (a *app) rolloutListCmd() *cobra.Command {
	var policy string
	var ended bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List rollouts", Args: exactly(), Example: "  rota rollout list --policy model-7b --ended",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListRolloutsResponse{}
			req := &rotav1.ListRolloutsRequest{Namespace: a.settings.namespace, Policy: policy, IncludeEnded: ended, PageSize: 1000}
			err := pages(ctx, a, c.Rollouts.ListRollouts, req, &req.PageToken, func(page *rotav1.ListRolloutsResponse) {
				all.Rollouts = append(all.Rollouts, page.Rollouts...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Rollouts))
			for _, r := range all.Rollouts {
				k := r.GetCounts()
				rows = append(rows, []string{strconv.FormatUint(r.Id, 10), rolloutState(r), r.Spec.GetPolicy(), r.Spec.GetName(),
					fmt.Sprintf("%d of %d", k.GetCompleteGroups()+k.GetDeliveredGroups(), r.Spec.GetGroups()), fmt.Sprint(k.GetRunning()), fmt.Sprint(k.GetSampled()), formatTime(r.CreateTime)})
			}
			return a.print(all, []string{"id", "state", "policy", "name", "complete", "running", "samples", "created"}, rows)
		}),
	}
	cmd.Flags().StringVar(&policy, "policy", "", "list only rollouts of this policy")
	cmd.Flags().BoolVar(&ended, "ended", false, "list also rollouts that have ended and are kept")
	return cmd
}

func (a *app) rolloutGetCmd() *cobra.Command {
	var groups bool
	var from uint32
	cmd := &cobra.Command{
		Use: "get ID", Short: "Show a rollout, and its groups", Args: exactly("ID"), Example: "  rota rollout get 3\n  rota rollout get 3 --groups --from 256",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			resp, err := rolloutWithGroups(&rotav1.GetRolloutRequest{Id: id, Groups: groups, FirstGroup: from}, func(req *rotav1.GetRolloutRequest) (*rotav1.GetRolloutResponse, error) {
				return call(ctx, a, c.Rollouts.GetRollout, req)
			})
			if err != nil {
				return err
			}
			return a.printRollout(resp.Rollout, resp, resp.Groups)
		}),
	}
	cmd.Flags().BoolVar(&groups, "groups", false, "show also the groups that have had a trajectory")
	cmd.Flags().Uint32Var(&from, "from", 0, "first group to show")
	return cmd
}

func (a *app) rolloutWatchCmd() *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Follow a rollout until it has ended", Args: exactly("ID"),
		Long: `Prints a line whenever a rollout has changed, and ends when the rollout has ended. It asks again
after each --interval, and goes on while the cluster elects a leader. -o json prints the whole
rollout each time.`,
		Example: "  rota rollout watch 3\n  rota rollout watch 3 --interval 10s -o json",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			if interval <= 0 {
				return usageErrorf("--interval must be more than 0, such as 1s")
			}
			get := func() (*rotav1.Rollout, error) {
				resp, err := call(ctx, a, c.Rollouts.GetRollout, &rotav1.GetRolloutRequest{Id: id})
				return resp.GetRollout(), err
			}
			return followRollout(ctx, interval, get, func(r *rotav1.Rollout) error {
				return a.printLine(r, time.Now().Format(time.TimeOnly)+"  "+rolloutLine(r))
			})
		}),
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks")
	return cmd
}

// followRollout shows a rollout whenever it has changed, until it has ended. A cluster that cannot answer for
// a while is asked again.
func followRollout(ctx context.Context, interval time.Duration, get func() (*rotav1.Rollout, error), show func(*rotav1.Rollout) error) error {
	for last := (*rotav1.Rollout)(nil); ; {
		r, err := get()
		switch {
		case last != nil && ctx.Err() == nil && connect.CodeOf(err) == connect.CodeUnavailable:
			r = last
		case err != nil:
			return err
		}
		if last == nil || !proto.Equal(r, last) {
			if err := show(r); err != nil {
				return err
			}
		}
		if last = r; r.GetState() == rotav1.RolloutState_ROLLOUT_STATE_CLOSED {
			return nil
		}
		if err := backoff.Sleep(ctx, interval); err != nil {
			return err
		}
	}
}

// rolloutLine is a rollout in a line.
func rolloutLine(r *rotav1.Rollout) string {
	k := r.GetCounts()
	return fmt.Sprintf("%s: %d of %d groups complete, %d delivered; %d running, %d sampled, %d failed. %s", rolloutState(r),
		k.GetCompleteGroups()+k.GetDeliveredGroups(), r.GetSpec().GetGroups(), k.GetDeliveredGroups(), k.GetRunning(), k.GetSampled(), k.GetFailed(), explainRollout(r))
}

// rolloutWithGroups asks until it has all groups that are asked for: an answer has some of them.
func rolloutWithGroups(req *rotav1.GetRolloutRequest, get func(*rotav1.GetRolloutRequest) (*rotav1.GetRolloutResponse, error)) (*rotav1.GetRolloutResponse, error) {
	all, err := get(req)
	for page := all; err == nil && len(page.Groups) > 0; {
		req.FirstGroup = page.Groups[len(page.Groups)-1].Index + 1
		if page, err = get(req); err == nil {
			all.Groups = append(all.Groups, page.Groups...)
		}
	}
	return all, err
}

func (a *app) rolloutExplainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Say what a rollout waits for", Args: exactly("ID"), Example: "  rota rollout explain 3",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			resp, err := call(ctx, a, c.Rollouts.GetRollout, &rotav1.GetRolloutRequest{Id: id})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{
				{"rollout", strconv.FormatUint(id, 10)},
				{"explanation", explainRollout(resp.Rollout)},
				{"predicted by", explainPredictions(resp.Predictions)},
			})
		}),
	}
}

func (a *app) rolloutCloseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "close ID", Short: "Close the trajectories of a rollout that have made no sample; complete groups stay", Args: exactly("ID"), Example: "  rota rollout close 3",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			resp, err := call(ctx, a, c.Rollouts.CloseRollout, &rotav1.CloseRolloutRequest{Id: id})
			if err != nil {
				return err
			}
			return a.printRollout(resp.Rollout, resp.Rollout, nil)
		}),
	}
}

func rolloutState(r *rotav1.Rollout) string { return enumWord(r.GetState(), "ROLLOUT_STATE_") }

// explainRollout says in a sentence what a rollout waits for.
func explainRollout(r *rotav1.Rollout) string {
	k, s := r.GetCounts(), r.GetSpec()
	switch missing := s.GetGroups() - k.GetCompleteGroups() - k.GetDeliveredGroups(); {
	case r.GetState() == rotav1.RolloutState_ROLLOUT_STATE_CLOSED:
		return fmt.Sprintf("it has ended: steps were given %s, and %s dropped", plural(int(k.GetDeliveredGroups()), "group"), wereDropped(k.GetDroppedGroups()))
	case r.GetState() == rotav1.RolloutState_ROLLOUT_STATE_CLOSING && k.GetRunning() > 0:
		return fmt.Sprintf("it was closed, and %s still to be closed", areLeft(k.GetRunning()))
	case missing == 0 || r.GetState() == rotav1.RolloutState_ROLLOUT_STATE_CLOSING:
		return fmt.Sprintf("a step of training has yet to take %s: rota batch get --policy %s", plural(int(k.GetCompleteGroups()), "complete group"), s.GetPolicy())
	case k.GetRunning() == 0:
		return fmt.Sprintf("%s not complete, and no trajectory runs: open some with rota trajectory open --rollout %d --group N", areGroups(missing), r.GetId())
	default:
		return fmt.Sprintf("%s not complete: %s and %d have made a sample", areGroups(missing), areRunning(k.GetRunning()), k.GetSampled())
	}
}

// explainPredictions says whose predictions the trajectories of a rollout are ordered by; empty if
// workers generate for none.
func explainPredictions(p *rotav1.RolloutPredictions) string {
	var by []string
	if n := p.GetService(); n > 0 {
		by = append(by, fmt.Sprintf("the predictor service (%s)", plural(int(n), "trajectory")))
	}
	if n := p.GetOwn(); n > 0 {
		by = append(by, fmt.Sprintf("rota (%s)", plural(int(n), "trajectory")))
	}
	return strings.Join(by, ", ")
}

func are(n uint32, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return fmt.Sprintf("%d %ss are", n, noun)
}

func areGroups(n uint32) string { return are(n, "group") }

func areLeft(n uint32) string {
	if n == 1 {
		return "1 trajectory is"
	}
	return fmt.Sprintf("%d trajectories are", n)
}

func areRunning(n uint32) string {
	if n == 1 {
		return "1 trajectory runs"
	}
	return fmt.Sprintf("%d trajectories run", n)
}

func wereDropped(n uint32) string {
	if n == 1 {
		return "1 was"
	}
	return fmt.Sprintf("%d were", n)
}

// printRollout shows a rollout and some of its groups; as JSON it is the message.
func (a *app) printRollout(r *rotav1.Rollout, message proto.Message, groups []*rotav1.RolloutGroup) error {
	k, s := r.GetCounts(), r.GetSpec()
	fields := []field{
		{"rollout", strconv.FormatUint(r.GetId(), 10)},
		{"state", rolloutState(r)},
		{"explanation", explainRollout(r)},
		{"namespace", r.GetNamespace()},
		{"name", s.GetName()},
		{"policy", s.GetPolicy()},
		{"groups", fmt.Sprintf("%d of %d samples, and %d redundant trajectories", s.GetGroups(), s.GetSamplesPerGroup(), s.GetRedundant())},
		{"staleness", plural(int(s.GetStaleness()), "version")},
		{"complete groups", fmt.Sprintf("%d wait, %d delivered, %d dropped", k.GetCompleteGroups(), k.GetDeliveredGroups(), k.GetDroppedGroups())},
		{"trajectories", fmt.Sprintf("%d opened: %d running, %d sampled, %d redundant, %d stale, %d failed",
			k.GetOpened(), k.GetRunning(), k.GetSampled(), k.GetRedundant(), k.GetStale(), k.GetFailed())},
		{"created", formatTime(r.GetCreateTime())},
		{"ended", formatTime(r.GetEndTime())},
	}
	for _, g := range groups {
		fields = append(fields, field{fmt.Sprintf("group %d", g.Index), groupText(g)})
	}
	return a.printFields(message, fields)
}

// groupText is "given to step 3: 5 sampled (version 2), 6 redundant (version 2)".
func groupText(g *rotav1.RolloutGroup) string {
	members := make([]string, 0, len(g.Members))
	for _, m := range g.Members {
		members = append(members, fmt.Sprintf("%d %s (version %d)", m.TrajectoryId, enumWord(m.State, "ROLLOUT_MEMBER_STATE_"), m.Version))
	}
	text := strings.Join(members, ", ")
	switch {
	case g.Step != 0:
		return fmt.Sprintf("given to step %d: %s", g.Step, text)
	case g.Complete:
		return "complete: " + text
	}
	return text
}
