package cli

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"rota/cmd/internal/bench"
)

func (a *app) benchEnginesCmd() *cobra.Command {
	var o bench.EnginesOptions
	cmd := &cobra.Command{
		Use: "engines", Short: "Compare engines that take turns on GPUs with a static assignment (simulated GPUs)", Args: exactly(),
		Long: `Requests to teacher models arrive at random on this machine. There are more teachers than
GPUs, and each teacher needs a whole GPU. The engines are simulated: real processes that
answer over HTTP, start, sleep and wake, but compute nothing and have no GPU. They are
served in these ways:

  turns   by rota: each request is an action that calls the engine of its teacher. Agents
          put engines to sleep and wake them where they are needed
  static  without rota: each teacher has a share of one GPU for ever, as a partition of the
          GPU would give it. A request takes as many times longer as teachers share the GPU.
          Requests queue at their teacher, and are sent to it directly

In each round, the same requests arrive at the same times under both. The two take turns in
an order that rotates. A round before the first is not measured. The ratio compares the mean
completion time (ACT) with that of turns in the same round: the median of all rounds, the
least and the greatest. The same work, done before each turn on all cores, shows how noisy
the machine was. At the end, the same requests go through the simulator ("rota sim"), with
the times of requests and set-ups that were measured. It predicts the ratio, and the output
says how far off the measured ratio is.

Popularity follows Zipf. At a higher load, the first teacher's share of a GPU does not
suffice in the static assignment, so its queue grows for as long as the round lasts: choose
a load at which both can keep up.`,
		Example: `  rota bench engines
  rota bench engines --teachers 12 --gpus 8 --load 0.2 --wake 300ms -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEngines(&o); err != nil {
				return err
			}
			r, err := bench.Engines(cmd.Context(), o, func(round int, policy string, meanMS float64) {
				fmt.Fprintf(a.err, "round %d of %d, %-6s mean %.0f ms\n", round+1, o.Rounds, policy, meanMS)
			})
			if err != nil {
				return err
			}
			if a.json() {
				return writeJSON(a.out, r)
			}
			writeEngines(a.out, r)
			return nil
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().IntVar(&o.Rounds, "rounds", 5, "number of rounds; each has a turn of both policies")
	cmd.Flags().IntVar(&o.Requests, "requests", 200, "requests that arrive in a turn")
	cmd.Flags().IntVar(&o.Teachers, "teachers", 9, "number of teacher models")
	cmd.Flags().IntVar(&o.GPUs, "gpus", 4, "number of simulated GPUs: 1, 2, 4 or 8")
	cmd.Flags().Float64Var(&o.Load, "load", 0.25, "service that arrives, over what the GPUs can give")
	cmd.Flags().Float64Var(&o.Zipf, "zipf", 1, "exponent of popularity; 0: all are asked alike")
	cmd.Flags().DurationVar(&o.Service, "service", 100*time.Millisecond, "time of a request on a whole GPU")
	cmd.Flags().DurationVar(&o.Start, "start", 500*time.Millisecond, "time that an engine takes to load")
	cmd.Flags().DurationVar(&o.Wake, "wake", 50*time.Millisecond, "time that an engine takes to wake")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of arrivals and popularity")
	return cmd
}

func checkEngines(o *bench.EnginesOptions) error {
	switch {
	case o.Rounds < 1 || o.Requests < 1:
		return usageErrorf("--rounds and --requests must be at least 1")
	case o.GPUs != 1 && o.GPUs != 2 && o.GPUs != 4 && o.GPUs != 8:
		return usageErrorf("--gpus is %d; it must be 1, 2, 4 or 8", o.GPUs)
	case o.Teachers < o.GPUs:
		return usageErrorf("--teachers is %d; give at least as many as GPUs, since otherwise there are no turns to take", o.Teachers)
	case !(o.Load > 0) || o.Service <= 0:
		return usageErrorf("--load and --service must be more than 0")
	case !(o.Zipf >= 0) || o.Start < 0 || o.Wake < 0:
		return usageErrorf("--zipf, --start and --wake must not be negative")
	}
	return nil
}

// writeEngines writes the comparison for people.
func writeEngines(w io.Writer, r *bench.EnginesResult) {
	f := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	var rows [][]string
	for _, p := range r.Policies {
		rows = append(rows, []string{p.Policy, f(p.MeanMS), f(p.P50MS), f(p.P99MS),
			fmt.Sprintf("%.2f", p.Ratio.Median), fmt.Sprintf("%.2f to %.2f", p.Ratio.Min, p.Ratio.Max)})
	}
	writeTable(w, []string{"policy", "mean ms", "p50 ms", "p99 ms", "ratio", "of rounds"}, rows)
	fmt.Fprintf(w, "\n%d simulated teachers on %d simulated GPUs; rounds: %d, of %d requests of %.0f ms: load %.2f\n",
		r.Teachers, r.GPUs, r.Rounds, r.Requests, r.ServiceMS, r.Load)
	fmt.Fprintf(w, "engines were started %d, woken %d and put to sleep %d times, and failed %d times; a set-up took %.0f ms\n",
		r.Starts, r.Wakes, r.Sleeps, r.Failures, r.SetUpMS)
	if p := r.Predicted; p != nil {
		fmt.Fprintf(w, "the simulator predicts, for the same arrivals, requests of %.1f ms and set-ups of %.1f ms as measured: turns %.0f ms, static %.0f ms, ratio %.2f (%.2f to %.2f); the measured ratio is %.0f %% %s\n",
			p.ServiceMS, p.SetUpMS, p.TurnsMS, p.StaticMS, p.Ratio.Median, p.Ratio.Min, p.Ratio.Max, 100*math.Abs(p.Off), aboveOrBelow(p.Off))
	}
	fmt.Fprintf(w, "noise: %v\n", r.Noise)
}

func aboveOrBelow(off float64) string {
	if off < 0 {
		return "below"
	}
	return "above"
}
