package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) nodeGroupCmd() *cobra.Command {
	return group("node-group", "Create, see and delete node groups; one deployment at a time holds a group",
		a.nodeGroupCreateCmd(), a.reads(a.nodeGroupListCmd()), a.reads(a.nodeGroupGetCmd()), a.nodeGroupSetMembersCmd(), a.nodeGroupDeleteCmd())
}

func (a *app) nodeGroupCreateCmd() *cobra.Command {
	req := &rotav1.CreateNodeGroupRequest{}
	var members memberFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a node group", Args: exactly("NAME"),
		Long: `Creates a group of nodes for the turns of training jobs. The turn that holds the group has
all of its nodes. rota tries to place waiting jobs at once.

A group with members shares their GPUs with actions: while a turn has the group no action gets
them, and between turns only actions that end before the group needs them. A member is a node,
or a chunk of its GPUs; each counts as one node of the group. With --select, nodes that have
the labels replace members that are lost.`,
		Example: "  rota node-group create train-a --nodes 8\n  rota node-group create train-b --member node-1:0-3 --member node-2 --select gpu=h100:4",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			req.Name = args[0]
			var err error
			if req.Nodes, req.Members, req.Selector, err = members.apply(); err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Ledger.CreateNodeGroup, req)
			if err != nil {
				return err
			}
			return a.printFields(resp, groupFields(resp.Group))
		}),
	}
	members.addTo(cmd.Flags())
	cmd.Flags().StringVar(&req.HookPool, "hook-pool", "", "pool whose agents run the hooks of a context switch (default: default)")
	return cmd
}

func (a *app) nodeGroupListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List node groups and their holders", Args: exactly(),
		Example: "  rota node-group list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Ledger.ListNodeGroups, &rotav1.ListNodeGroupsRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Groups))
			for _, g := range resp.Groups {
				rows = append(rows, []string{
					g.Name, fmt.Sprint(g.Nodes), groupJobs(g), optionalDuration(g.Period), groupHolder(g), orDash(g.Resident), g.Halted, g.Degraded,
				})
			}
			return a.print(resp, []string{"name", "nodes", "jobs", "period", "holder", "resident", "halted", "degraded"}, rows)
		}),
	}
}

func (a *app) nodeGroupDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a node group that no job is on", Args: exactly("NAME"),
		Example: "  rota node-group delete train-a",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Ledger.DeleteNodeGroup, &rotav1.DeleteNodeGroupRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		}),
	}
}

// groupJobs says "3 and 1 backfill".
func groupJobs(g *rotav1.NodeGroup) string {
	if g.BackfillJobs > 0 {
		return fmt.Sprintf("%d and %d backfill", g.Jobs, g.BackfillJobs)
	}
	return fmt.Sprint(g.Jobs)
}

// groupHolder says "default/job-a/actor (turn 7)". Hooks may run for a turn that has
// already ended.
func groupHolder(g *rotav1.NodeGroup) string {
	text := "-"
	if g.TurnId != 0 {
		text = strings.TrimSpace(fmt.Sprintf("%s (turn %d)", g.Holder, g.TurnId))
	}
	if g.ContextSwitch {
		text += " (hooks run)"
	}
	return text
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
