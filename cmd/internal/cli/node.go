package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) nodeCmd() *cobra.Command {
	return group("node", "See, drain and remove the machines that run actions",
		a.reads(a.nodeListCmd()), a.reads(a.nodeGetCmd()), a.nodeDrainCmd(), a.nodeRemoveCmd())
}

func (a *app) nodeListCmd() *cobra.Command {
	var pool string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List nodes", Args: exactly(),
		Example: "  rota node list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, err := a.allNodes(cmd.Context(), pool)
			if err != nil {
				return err
			}
			all := &rotav1.ListNodesResponse{Nodes: nodes}
			rows := make([][]string, 0, len(all.Nodes))
			for _, n := range all.Nodes {
				rows = append(rows, []string{n.Name, nodeState(n), n.Pool, coresText(n), memoryText(n),
					fmt.Sprint(n.RunningActions), fmt.Sprint(n.QueuedActions), fmt.Sprint(n.OpenTrajectories), yesNo(n.Containers), n.Runtime})
			}
			return a.print(all, []string{"name", "state", "pool", "free cores", "free memory",
				"running", "queued", "trajectories", "containers", "runtime"}, rows)
		},
	}
	cmd.Flags().StringVar(&pool, "pool", "", "list only nodes of this pool")
	return cmd
}

// allNodes reads all pages of the nodes of a pool, or of all.
func (a *app) allNodes(ctx context.Context, pool string) (nodes []*rotav1.Node, err error) {
	c, err := a.dial()
	if err != nil {
		return nil, err
	}
	req := &rotav1.ListNodesRequest{Pool: pool, PageSize: 1000}
	err = pages(ctx, a, c.Nodes.ListNodes, req, &req.PageToken, func(page *rotav1.ListNodesResponse) {
		nodes = append(nodes, page.Nodes...)
	})
	return nodes, err
}

func (a *app) nodeGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one node", Args: exactly("NAME"),
		Example: "  rota node get node-1",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Nodes.GetNode, &rotav1.GetNodeRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printNode(resp.Node)
		}),
	}
}

func (a *app) nodeDrainCmd() *cobra.Command {
	var resume bool
	cmd := &cobra.Command{
		Use: "drain NAME", Short: "Stop new work on a node, or allow new work again", Args: exactly("NAME"),
		Long:    "Running actions continue. Open trajectories stay until you close them.",
		Example: "  rota node drain node-1\n  rota node drain node-1 --resume",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Nodes.DrainNode, &rotav1.DrainNodeRequest{Name: args[0], Resume: resume})
			if err != nil {
				return err
			}
			return a.printNode(resp.Node)
		}),
	}
	cmd.Flags().BoolVar(&resume, "resume", false, "allow new work again")
	return cmd
}

func (a *app) nodeRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a node that is down", Args: exactly("NAME"),
		Example: "  rota node remove node-1",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Nodes.RemoveNode, &rotav1.RemoveNodeRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"removed", args[0]}})
		}),
	}
}

func (a *app) printNode(n *rotav1.Node) error {
	labels := make([]string, 0, len(n.GetLabels()))
	for k, v := range n.GetLabels() {
		labels = append(labels, k+"="+v)
	}
	slices.Sort(labels)
	var numa []string
	for i, m := range n.GetNumaNodes() {
		numa = append(numa, fmt.Sprintf("%d: %s", i, formatCPUs(m.Cpus)))
	}
	return a.printFields(n, []field{
		{"node", n.GetName()},
		{"state", nodeState(n)},
		{"pool", n.GetPool()},
		{"address", n.GetAddress()},
		{"runtime", n.GetRuntime()},
		{"containers", containersText(n)},
		{"labels", strings.Join(labels, " ")},
		{"NUMA nodes", strings.Join(numa, "; ")},
		{"free cores", coresText(n)},
		{"spare cores", spareText(n)},
		{"shared cores", sharedText(n)},
		{"free memory", memoryText(n)},
		{"GPUs", gpusText(n)},
		{"GPUs out of use", unhealthyText(n)},
		{"free bandwidth", bandwidthText(n)},
		{"running", fmt.Sprint(n.GetRunningActions())},
		{"queued", fmt.Sprint(n.GetQueuedActions())},
		{"trajectories", fmt.Sprint(n.GetOpenTrajectories())},
		{"registered", formatTime(n.GetRegistrationTime())},
		{"incarnation", optionalID(n.GetIncarnation())},
	})
}

func nodeState(n *rotav1.Node) string {
	word := enumWord(n.GetState(), "NODE_STATE_")
	switch {
	case n.GetDraining() && n.GetLowDisk():
		return word + " (draining, low disk)"
	case n.GetDraining():
		return word + " (draining)"
	case n.GetLowDisk():
		return word + " (low disk)"
	}
	return word
}

func coresText(n *rotav1.Node) string {
	total := 0
	for _, m := range n.GetNumaNodes() {
		total += len(m.Cpus)
	}
	return fmt.Sprintf("%d of %d", len(n.GetFreeCpus()), total)
}

// spareText says which cores actions can give up, on a node that can take them.
func spareText(n *rotav1.Node) string {
	if !n.GetResizes() {
		return "none: the cores of running actions cannot be changed here"
	}
	return fmt.Sprintf("%d, which running actions give up when another starts", n.GetSpareCores())
}

// sharedText says which cores several actions share; empty: each core has one user.
func sharedText(n *rotav1.Node) string {
	after := n.GetShareAfter().AsDuration()
	switch {
	case n.GetSharingActions() > 0:
		return fmt.Sprintf("%s, by %s that have run for %v or more while others waited", formatCPUs(n.GetSharedCpus()), plural(int(n.GetSharingActions()), "action"), after)
	case after > 0:
		return fmt.Sprintf("none now; actions that have run for %v share some when others wait for cores", after)
	}
	return ""
}

func memoryText(n *rotav1.Node) string {
	return fmt.Sprintf("%s of %s", formatSize(n.GetFreeMemoryBytes()), formatSize(n.GetMemoryBytes()))
}

// containersText says whether trajectories with a container can live on a node.
func containersText(n *rotav1.Node) string {
	if !n.GetContainers() {
		return "none run here"
	}
	return "trajectories with a container can live here"
}
