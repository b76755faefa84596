package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rota/cmd/internal/bench"
	"rota/cmd/internal/spin"
)

func (a *app) benchElasticCmd() *cobra.Command {
	var o bench.ElasticOptions
	cmd := &cobra.Command{
		Use: "elastic [flags] [-- COMMAND [ARG...]]", Short: "Compare resizing with fixed widths and equal shares, for real parallel suites",
		Long: `Parallel suites arrive at random on this machine and compute for real. They share its
cores in these ways:

  resized  actions of one core and more, whose cores rota changes while they run
  fixed N  actions of N cores
  shares   without rota: all suites run at once in cgroups of equal weight, as pods of
           equal size would, and the kernel divides the cores

In each round, the same suites arrive at the same times under each policy. The policies
take turns in an order that rotates, so that noise hits all alike. The ratio compares the
mean completion time with that of the first policy in the same round: the median of all
rounds, the least and the greatest. The same work, done before each turn on all cores,
shows how noisy the machine was. At the end, the cost of a resize is measured.

A built-in suite compresses text, with one worker for each core that it may get. Instead,
COMMAND may be a suite of your own: {{cores}} in it becomes the number of cores. It then
runs in the current folder, many times, and several at once. rota knows no durations.

A round takes about SUITES * WORK / (LOAD * cores) for each policy, five minutes in all on
two cores. On a busy machine, choose a lower load: what others use cannot be used twice.
Resizing takes root and a cpuset controller. On two cores there are only two widths, and
the three servers and the agent use the same cores.`,
		Example: `  rota bench elastic
  rota bench elastic --rounds 20 --load 0.8 --serial 0.3 -o json
  rota bench elastic --suites 10 -- go test -count=1 -p {{cores}} ./api/... ./sched/...
  rota bench elastic --suites 10 -- pytest -q -n {{cores}} tests`,
		Args: func(*cobra.Command, []string) error { return checkElastic(&o) },
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Command = args
			r, err := bench.Elastic(cmd.Context(), o, func(round int, policy string, meanMS float64) {
				fmt.Fprintf(a.err, "round %d of %d, %-8s mean %.0f ms\n", round+1, o.Rounds, policy, meanMS)
			})
			if err != nil {
				return err
			}
			if a.json() {
				return writeJSON(a.out, r)
			}
			writeElastic(a.out, r)
			return nil
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().IntVar(&o.Rounds, "rounds", 10, "number of rounds; each has a turn of every policy")
	cmd.Flags().IntVar(&o.Suites, "suites", 12, "suites that arrive in a turn")
	cmd.Flags().Float64Var(&o.Load, "load", 0.6, "work that arrives, over what the cores can do")
	cmd.Flags().DurationVar(&o.Work, "work", 600*time.Millisecond, "mean time of a suite with one core, exponentially distributed; COMMAND is measured instead")
	cmd.Flags().Float64Var(&o.Serial, "serial", 0.1, "part of a suite that only one core can do")
	cmd.Flags().IntSliceVar(&o.Widths, "widths", nil, "fixed numbers of cores (default: powers of two)")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of arrivals and work")
	return cmd
}

func checkElastic(o *bench.ElasticOptions) error {
	switch {
	case o.Rounds < 1 || o.Suites < 1:
		return usageErrorf("--rounds and --suites must be at least 1")
	case !(o.Load > 0) || o.Work <= 0:
		return usageErrorf("--load and --work must be more than 0")
	case !(o.Serial >= 0 && o.Serial <= 1):
		return usageErrorf("--serial is %v; it must be between 0 and 1", o.Serial)
	}
	return nil
}

// writeElastic writes the comparison for people.
func writeElastic(w io.Writer, r *bench.ElasticResult) {
	f := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	var rows [][]string
	for _, p := range r.Policies {
		resizes, switches := fmt.Sprintf("%.1f", p.Resizes), f(p.Switches)
		if p.Switches == 0 { // a command of the user's counts nothing
			resizes, switches = "-", "-"
		}
		rows = append(rows, []string{p.Policy, f(p.MeanMS), f(p.P50MS), f(p.P99MS),
			fmt.Sprintf("%.2f", p.Ratio.Median), fmt.Sprintf("%.2f to %.2f", p.Ratio.Min, p.Ratio.Max), resizes, switches})
	}
	writeTable(w, []string{"policy", "mean ms", "p50 ms", "p99 ms", "ratio", "of rounds", "resizes", "switches"}, rows)
	fmt.Fprintf(w, "\n%d cores; rounds: %d, of %d suites; %.0f ms of work each on average, every %.0f ms: load %.2f\n",
		r.Cores, r.Rounds, r.Suites, r.WorkMS, r.GapMS, r.Load)
	fmt.Fprintf(w, "noise: %v\n", r.Noise)
	fmt.Fprintf(w, "a resize takes %.0f µs (p99 %.0f µs) and adds %.1f context switches (%d resizes)\n",
		r.Resize.P50US, r.Resize.P99US, r.Resize.Switches, r.Resize.Resizes)
}

// suiteCmd is the suite that the benchmark runs.
func (a *app) suiteCmd() *cobra.Command {
	var s bench.Suite
	var measure bool
	cmd := &cobra.Command{
		Use: "suite", Short: "Compute, and say how often the cores changed", Args: exactly(), Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			if measure {
				_, err := fmt.Fprintln(a.out, spin.UnitTime())
				return err
			}
			return writeJSON(a.out, s.Run())
		},
	}
	cmd.Flags().IntVar(&s.Serial, "serial", 0, "units of work that are done one after the other")
	cmd.Flags().IntVar(&s.Parallel, "parallel", 1, "units of work that all workers do")
	cmd.Flags().IntVar(&s.Workers, "workers", 1, "number of workers")
	cmd.Flags().BoolVar(&measure, "measure-unit", false, "print how long a unit takes and do no more")
	return cmd
}
