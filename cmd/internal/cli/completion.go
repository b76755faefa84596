package cli

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// completionTimeout is how long a shell waits for IDs and names. These come from
	// stale reads of one server, so they also work without a leader.
	completionTimeout = 2 * time.Second
	completionsMax    = 200
)

// lister returns all IDs or names of a noun, each with a tab and a description, if any.
type lister func(context.Context, *client.Client, *settings) ([]string, error)

// completed lets shells complete the IDs or names that the commands of a noun take, or one command.
func (a *app) completed(noun *cobra.Command, list lister) *cobra.Command {
	commands := noun.Commands()
	if len(commands) == 0 { // a command by itself, such as rota logs
		commands = []*cobra.Command{noun}
	}
	for _, cmd := range commands {
		_, argument, _ := strings.Cut(cmd.Use, " ")
		argument = strings.TrimPrefix(argument, "[flags] ")
		if isNew := cmd.Name() == "create" || cmd.Name() == "submit" || (noun.Name() == "worker" || noun.Name() == "reward" || noun.Name() == "pool") && cmd.Name() == "register"; isNew || !slices.ContainsFunc([]string{"ID", "NAME", "MODEL", "TRAJECTORY"}, func(what string) bool { return strings.HasPrefix(argument, what) }) {
			continue
		}
		several := strings.HasSuffix(argument, "...")
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 && !several {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			all := a.completions(cmd, list)
			return slices.DeleteFunc(all, func(s string) bool {
				id, _, _ := strings.Cut(s, "\t")
				return slices.Contains(args, id)
			}), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		}
	}
	return noun
}

// completions are empty if anything goes wrong: a shell has no place for an error.
func (a *app) completions(cmd *cobra.Command, list lister) []string {
	if resolve(cmd, a.settings.config) != nil || a.settings.check() != nil {
		return nil
	}
	a.settings.timeout = completionTimeout
	a.err = io.Discard
	c, err := a.dial()
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	all, err := list(ctx, c, &a.settings)
	if err != nil {
		return nil
	}
	for i := range all {
		all[i] = quoteControls(all[i], "\t")
	}
	return all
}

// listActionIDs lists running and waiting actions first, because users mostly want these.
func listActionIDs(ctx context.Context, c *client.Client, s *settings) (all []string, err error) {
	live := []rotav1.ActionState{rotav1.ActionState_ACTION_STATE_RUNNING, rotav1.ActionState_ACTION_STATE_QUEUED}
	seen := map[uint64]bool{}
	for _, states := range [][]rotav1.ActionState{live, nil} {
		resp, err := c.Actions.ListActions(ctx, &rotav1.ListActionsRequest{
			Namespace: s.namespace, States: states, PageSize: completionsMax, AllowStale: true,
		})
		if err != nil {
			return nil, err
		}
		for _, act := range resp.Actions {
			if !seen[act.Id] {
				seen[act.Id] = true
				all = append(all, strconv.FormatUint(act.Id, 10)+"\t"+stateText(act)+": "+printable(commandText(act, 40)))
			}
		}
	}
	return all, nil
}

func listTrajectoryIDs(ctx context.Context, c *client.Client, s *settings) (all []string, err error) {
	resp, err := c.Trajectories.ListTrajectories(ctx, &rotav1.ListTrajectoriesRequest{Namespace: s.namespace, PageSize: completionsMax, AllowStale: true})
	for _, t := range resp.GetTrajectories() {
		all = append(all, strconv.FormatUint(t.Id, 10)+"\t"+enumWord(t.State, "TRAJECTORY_STATE_")+" "+printable(t.Name))
	}
	return all, err
}

func listMigrationIDs(ctx context.Context, c *client.Client, s *settings) (all []string, err error) {
	resp, err := c.Migrations.ListMigrations(ctx, &rotav1.ListMigrationsRequest{Namespace: s.namespace, PageSize: completionsMax, AllowStale: true})
	for _, m := range resp.GetMigrations() {
		all = append(all, strconv.FormatUint(m.Id, 10)+"\t"+migrationState(m)+" to "+m.Target)
	}
	return all, err
}

func listRolloutIDs(ctx context.Context, c *client.Client, s *settings) (all []string, err error) {
	resp, err := c.Rollouts.ListRollouts(ctx, &rotav1.ListRolloutsRequest{Namespace: s.namespace, PageSize: completionsMax, AllowStale: true})
	for _, r := range resp.GetRollouts() {
		all = append(all, strconv.FormatUint(r.Id, 10)+"\t"+rolloutState(r)+" "+printable(r.Spec.GetPolicy()+" "+r.Spec.GetName()))
	}
	return all, err
}

func listPolicyNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Rollouts.ListPolicies(ctx, &rotav1.ListPoliciesRequest{PageSize: completionsMax, AllowStale: true})
	for _, p := range resp.GetPolicies() {
		all = append(all, p.Name)
	}
	return all, err
}

func listNodeNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Nodes.ListNodes(ctx, &rotav1.ListNodesRequest{PageSize: completionsMax, AllowStale: true})
	for _, n := range resp.GetNodes() {
		all = append(all, n.Name+"\t"+nodeState(n))
	}
	return all, err
}

func listQuotaNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Quotas.ListQuotas(ctx, &rotav1.ListQuotasRequest{AllowStale: true})
	for _, q := range resp.GetQuotas() {
		all = append(all, q.Name)
	}
	return all, err
}

func listEngineModels(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Engines.ListEngines(ctx, &rotav1.ListEnginesRequest{AllowStale: true})
	for _, e := range resp.GetEngines() {
		all = append(all, e.Spec.GetModel()+"\t"+driverText(e.Spec))
	}
	return all, err
}

func listClassNames(ctx context.Context, c *client.Client, s *settings) (all []string, err error) {
	resp, err := c.Classes.ListClasses(ctx, &rotav1.ListClassesRequest{Namespace: s.namespace, PageSize: completionsMax, AllowStale: true})
	for _, class := range resp.GetClasses() {
		all = append(all, class.Name)
	}
	return all, err
}

func listJobNames(ctx context.Context, c *client.Client, s *settings) (all []string, err error) {
	resp, err := c.Jobs.ListJobs(ctx, &rotav1.ListJobsRequest{Namespace: s.namespace, PageSize: completionsMax, AllowStale: true})
	for _, j := range resp.GetJobs() {
		all = append(all, j.Name)
	}
	return all, err
}

func listGroupNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Ledger.ListNodeGroups(ctx, &rotav1.ListNodeGroupsRequest{AllowStale: true})
	for _, g := range resp.GetGroups() {
		all = append(all, g.Name)
	}
	return all, err
}

func listPoolNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Operator.ListPools(ctx, &rotav1.ListPoolsRequest{AllowStale: true})
	for _, p := range resp.GetPools() {
		all = append(all, p.Name)
	}
	return all, err
}

func listNamespaceNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Operator.ListNamespaces(ctx, &rotav1.ListNamespacesRequest{AllowStale: true})
	for _, n := range resp.GetNamespaces() {
		all = append(all, n.Name)
	}
	return all, err
}
