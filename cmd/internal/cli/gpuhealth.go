package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) gpuDisableCmd() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "disable NODE GPUS", Short: "Take GPUs of a node out of use", Args: exactly("NODE", "GPUS"),
		Long: `GPUS are numbers and ranges, such as 3 or 0,4-7. New actions, engines and turns do not get these
GPUs. What runs on them runs on. They stay out of use until you enable them, even when the agent
or the machine starts again.`,
		Example: "  rota gpu disable node-1 3 --reason 'fan is loud'",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			gpus, err := parseGPUs(args[1])
			if err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Nodes.DisableGpus, &rotav1.DisableGpusRequest{Name: args[0], Gpus: gpus, Reason: reason})
			if err != nil {
				return err
			}
			return a.printNode(resp.Node)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, which everybody sees that waits for the GPUs")
	return cmd
}

func (a *app) gpuEnableCmd() *cobra.Command {
	return &cobra.Command{
		Use: "enable NODE GPUS", Short: "Bring GPUs of a node back into use", Args: exactly("NODE", "GPUS"),
		Long: `GPUS are numbers and ranges, such as 3 or 0,4-7. This undoes "rota gpu disable". A GPU that the
agent reports as sick is used in spite of that: you vouch for it, until the agent reports it with
another reason, or as well and then as sick again.`,
		Example: "  rota gpu enable node-1 3",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			gpus, err := parseGPUs(args[1])
			if err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Nodes.EnableGpus, &rotav1.EnableGpusRequest{Name: args[0], Gpus: gpus})
			if err != nil {
				return err
			}
			return a.printNode(resp.Node)
		}),
	}
}

// gpuNumbersMax is how many GPUs a node has at most.
const gpuNumbersMax = 64

// parseGPUs reads numbers of GPUs, such as "0,4-7".
func parseGPUs(text string) (gpus []uint32, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 8)
		b, errB := strconv.ParseUint(last, 10, 8)
		if errA != nil || errB != nil || b < a || b >= gpuNumbersMax {
			return nil, usageErrorf("%q are not GPUs: write numbers from 0 to %d and ranges, such as 3 or 0,4-7", text, gpuNumbersMax-1)
		}
		for gpu := a; gpu <= b; gpu++ {
			gpus = append(gpus, uint32(gpu))
		}
	}
	return gpus, nil
}

// outOfUse reports whether nothing new is given a GPU.
func outOfUse(g *rotav1.UnhealthyGpu) bool { return g.Disabled || g.Sick != "" && !g.Trusted }

// unhealthyText says of a node's GPUs what its agent and operators say of them.
func unhealthyText(n *rotav1.Node) string {
	var out []string
	for _, g := range n.GetUnhealthyGpus() {
		var why []string
		if g.Disabled {
			why = append(why, strings.TrimSuffix("disabled: "+g.DisabledReason, ": "))
		}
		switch {
		case g.Sick != "" && g.Trusted:
			why = append(why, g.Sick+" (used all the same: an operator enabled it)")
		case g.Sick != "":
			why = append(why, g.Sick)
		}
		out = append(out, fmt.Sprintf("%d: %s", g.Gpu, strings.Join(why, ", ")))
	}
	return strings.Join(out, "; ")
}
