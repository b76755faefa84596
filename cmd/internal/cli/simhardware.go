package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"rota/internal/sim/rollouts"
)

func (a *app) simRolloutsHardwareCmd() *cobra.Command {
	var (
		f      simRolloutsFlags
		shares []int64
	)
	h := rollouts.DefaultHardware()
	cmd := &cobra.Command{
		Use: "hardware", Short: "Compare ways to choose between two kinds of hardware", Args: exactly(),
		Long: `Simulates steps of two mixed tasks: one is dominated by prompts, and one by what is generated. A
fleet has workers of two kinds: one computes prompts fast, and one reads memory fast (RollArt
§7.3). Nothing moves, and all workers have the model's degree. Ratios are how much longer the last
step takes than with hardware by measured tokens, and how much later trajectories end on average.`,
		Example: "  rota sim rollouts hardware\n  rota sim rollouts hardware --model 32b --games 25,50,75 --seeds 3",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.rolloutSetup(cmd)
			if err != nil {
				return simRolloutsError(err)
			}
			type point struct {
				Games    int64                      `json:"games_percent"`
				Policies []*rollouts.HardwareResult `json:"policies"`
			}
			var all []point
			var rows [][]string
			for _, share := range shares {
				h.GamePercent = share
				results, err := rollouts.CompareHardware(cmd.Context(), s, h, f.seeds)
				if err != nil {
					return simRolloutsError(err)
				}
				all = append(all, point{share, results})
				rows = append(rows, hardwareRows(share, results)...)
			}
			if a.json() {
				return writeJSON(a.out, struct {
					Simulated bool    `json:"simulated"`
					Points    []point `json:"points"`
				}{true, all})
			}
			title := fmt.Sprintf("simulated: hardware, model %s, batch %d, %d h800 and %d h20 or %d h800 or %d h20, seeds %d to %d", s.Model, h.Batch, h.Compute, h.Bandwidth, h.ComputeOnly, h.BandwidthOnly, s.Seed, s.Seed+uint64(f.seeds)-1)
			return a.printSim(&f.simFlags, title, []string{"games %", "policy", "step s", "ratio", "mean end s", "ratio of ends", "games on h800 %", "math on h800 %"}, rows)
		},
	}
	f.addRolloutsTo(cmd.Flags())
	cmd.Flags().Int64SliceVar(&shares, "games", []int64{h.GamePercent}, "share of trajectories that are dominated by prompts, in percent; several are compared")
	cmd.Flags().Int64Var(&h.Batch, "trajectories", h.Batch, "trajectories of a step")
	cmd.Flags().Int64Var(&h.Compute, "h800", h.Compute, "workers on H800 in the mixed fleet")
	cmd.Flags().Int64Var(&h.Bandwidth, "h20", h.Bandwidth, "workers on H20 in the mixed fleet")
	return cmd
}

func hardwareRows(share int64, results []*rollouts.HardwareResult) (rows [][]string) {
	for _, r := range results {
		rows = append(rows, []string{
			fmt.Sprint(share), r.Name, seconds(r.Median(func(r *rollouts.StepResult) int64 { return r.MakespanNS })), ranged(r.Ratio),
			seconds(r.Median(func(r *rollouts.StepResult) int64 { return r.CompletionMeanNS })), ranged(r.EndRatio),
			fmt.Sprint(r.GamesOnCompute), fmt.Sprint(r.MathOnCompute),
		})
	}
	return rows
}
