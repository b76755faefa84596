package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) policyAffinityCmd() *cobra.Command {
	return group("affinity", "Say which hardware generates for which tasks of a policy, and see what was measured",
		a.affinitySetCmd(), a.reads(a.affinityListCmd()), a.affinityRemoveCmd())
}

func (a *app) affinitySetCmd() *cobra.Command {
	v := &rotav1.Affinity{}
	cmd := &cobra.Command{
		Use: "set POLICY", Short: "Say which hardware the trajectories of a task class go to", Args: exactly("POLICY"),
		Long: `Says which kinds of hardware the trajectories of a task class go to, the best first. Other kinds are
used when all workers of these are full or down. With --spill, a later kind is also used when the
work of the best worker of an earlier kind would be longer by more than so many percent.

--cost-weight is how much the price of a worker counts (rota worker register --cost), from 0 to 100.
With 100, a worker at twice the price counts as if its work took twice as long.

Without --class, it holds for all task classes of the policy of which nothing else is said. It
replaces what was said before. Trajectories that have a worker stay there. Needs an operator's
certificate.`,
		Example: `  rota policy affinity set model-7b --class frozenlake --hardware h800,h20
  rota policy affinity set model-7b --class gem-math --hardware h20,h800 --spill 50
  rota policy affinity set model-7b --cost-weight 100`,
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if len(v.Hardware) == 0 && v.CostPercent == 0 {
				return usageErrorf("what to prefer is not given; give --hardware KIND,..., --cost-weight PERCENT, or both")
			}
			v.Policy = args[0]
			_, err := call(ctx, a, c.Workers.SetAffinity, &rotav1.SetAffinityRequest{Affinity: v})
			return err
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&v.TaskClass, "class", "", "task class, as in rota trajectory open --class; empty: all others of the policy")
	fs.StringSliceVar(&v.Hardware, "hardware", nil, "kinds of hardware, the best first, such as h800,h20")
	fs.Uint32Var(&v.CostPercent, "cost-weight", 0, "how much the price of a worker counts, from 0 to 100")
	fs.Uint32Var(&v.SpillPercent, "spill", 0, "use a later kind if the work of an earlier one is longer by more than so many percent; 0: only when it is full")
	return cmd
}

func (a *app) affinityListCmd() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List what was said and measured of task classes", Args: exactly(),
		Example: "  rota policy affinity list --policy model-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Workers.ListAffinities, &rotav1.ListAffinitiesRequest{Policy: policy})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Affinities))
			for _, s := range resp.Affinities {
				hardware, measured := "by measured tokens", "-"
				if kinds := s.Affinity.GetHardware(); len(kinds) > 0 {
					hardware = strings.Join(kinds, ", ")
				}
				if s.OutputTokens > 0 {
					measured = fmt.Sprintf("%.2f", float64(s.ResultTokens)/float64(s.OutputTokens))
				}
				rows = append(rows, []string{s.Affinity.GetPolicy(), s.Affinity.GetTaskClass(), hardware, fmt.Sprint(s.Affinity.GetSpillPercent()), fmt.Sprint(s.Affinity.GetCostPercent()), measured})
			}
			return a.print(resp, []string{"policy", "class", "hardware", "spill %", "cost %", "results per token"}, rows)
		}),
	}
	cmd.Flags().StringVar(&policy, "policy", "", "list those of this policy only")
	return cmd
}

func (a *app) affinityRemoveCmd() *cobra.Command {
	var class string
	cmd := &cobra.Command{
		Use: "remove POLICY", Short: "Forget what was said: hardware is chosen by measured tokens", Args: exactly("POLICY"),
		Example: "  rota policy affinity remove model-7b --class gem-math",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			_, err := call(ctx, a, c.Workers.RemoveAffinity, &rotav1.RemoveAffinityRequest{Policy: args[0], TaskClass: class})
			return err
		}),
	}
	cmd.Flags().StringVar(&class, "class", "", "task class; empty: what holds for all others of the policy")
	return cmd
}
