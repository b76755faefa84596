package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) namespaceSetCmd() *cobra.Command {
	var weight, queued, running, cores, gpus, trajectories uint32
	var memory size
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Set the weight and the limits of a namespace", Args: exactly("NAME"),
		Long: `Sets the weight and the limits of a namespace; what no flag names stays. Where namespaces
compete for cores, GPUs or a quota, each gets a share in proportion to its weight, which is 1
unless set. What one does not use goes to the others. Beyond --max-queued submissions are refused,
and beyond --max-trajectories no trajectory can be opened. --max-memory counts what open
trajectories reserve and running actions outside of them: beyond it no trajectory can be opened,
and such actions wait. Beyond the other limits actions wait, and those of the same namespace behind
them. A limit of 0 is none. Needs feature level 3.`,
		Example: "  rota operator namespace set team-a --weight 3\n  rota operator namespace set team-b --max-queued 10000 --max-running 500 --max-cores 400 --max-gpus 16 --max-memory 2TiB",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &rotav1.UpdateNamespaceRequest{Name: args[0]}
			for _, f := range []struct {
				name string
				from *uint32
				to   **uint32
			}{
				{"weight", &weight, &req.Weight}, {"max-queued", &queued, &req.QueuedActionsMax}, {"max-running", &running, &req.RunningActionsMax},
				{"max-cores", &cores, &req.CoresMax}, {"max-gpus", &gpus, &req.GpusMax}, {"max-trajectories", &trajectories, &req.TrajectoriesMax},
			} {
				if cmd.Flags().Changed(f.name) {
					*f.to = f.from
				}
			}
			if cmd.Flags().Changed("max-memory") {
				req.MemoryMax = (*uint64)(&memory)
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.UpdateNamespace, req)
			if err != nil {
				return err
			}
			return a.printFields(resp, namespaceFields(resp.Namespace))
		},
	}
	cmd.Flags().Uint32Var(&weight, "weight", 1, "its share in proportion to the weights of the others, 1 to 1000")
	cmd.Flags().Uint32Var(&queued, "max-queued", 0, "how many actions may be queued; 0: no limit")
	cmd.Flags().Uint32Var(&running, "max-running", 0, "how many actions may run; 0: no limit")
	cmd.Flags().Uint32Var(&cores, "max-cores", 0, "how many cores its actions may hold; 0: no limit")
	cmd.Flags().Uint32Var(&gpus, "max-gpus", 0, "how many GPUs its actions may hold; 0: no limit")
	cmd.Flags().Uint32Var(&trajectories, "max-trajectories", 0, "how many trajectories may be open; 0: no limit")
	cmd.Flags().Var(&memory, "max-memory", "how much memory its open trajectories and running actions may reserve; 0: no limit")
	cmd.MarkFlagsOneRequired("weight", "max-queued", "max-running", "max-cores", "max-gpus", "max-trajectories", "max-memory")
	return cmd
}

func (a *app) namespaceGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show the weight, the limits and the use of a namespace", Args: exactly("NAME"),
		Example: "  rota operator namespace get team-a",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Operator.ListNamespaces, &rotav1.ListNamespacesRequest{})
			if err != nil {
				return err
			}
			for _, n := range resp.Namespaces {
				if n.Name == args[0] {
					return a.printFields(n, namespaceFields(n))
				}
			}
			return &codeError{exitNotFound, fmt.Errorf("there is no namespace %q; see: rota operator namespace list", args[0])}
		}),
	}
}

// namespaceHeader has the names of namespaceFields.
var namespaceHeader = []string{"name", "weight", "share", "queued", "running", "cores", "gpus", "trajectories", "memory"}

func namespaceFields(n *rotav1.Namespace) []field {
	l, h := n.GetLimits(), n.GetHeld()
	return []field{
		{"name", n.GetName()}, {"weight", fmt.Sprint(n.GetWeight())}, {"share", shareText(n)},
		{"queued", ofAtMost(n.GetQueuedActions(), l.GetQueuedActions())}, {"running", ofAtMost(h.GetRunningActions(), l.GetRunningActions())},
		{"cores", ofAtMost(h.GetCores(), l.GetCores())}, {"gpus", ofAtMost(h.GetGpus(), l.GetGpus())},
		{"trajectories", ofAtMost(h.GetTrajectories(), l.GetTrajectories())}, {"memory", memoryOfAtMost(h.GetMemoryBytes(), l.GetMemoryBytes())},
	}
}

// shareText is the part that a namespace would get now of what is contended.
func shareText(n *rotav1.Namespace) string {
	if n.GetShare() == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*n.GetShare(), 'f', 1, 64) + " %"
}

// memoryOfAtMost is ofAtMost of bytes.
func memoryOfAtMost(has, most uint64) string {
	if most == 0 {
		return formatSize(has)
	}
	return formatSize(has) + " of " + formatSize(most)
}

// ofAtMost is what there is, and the limit if there is one.
func ofAtMost(has uint64, most uint32) string {
	if most == 0 {
		return fmt.Sprint(has)
	}
	return fmt.Sprintf("%d of %d", has, most)
}
