package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rota/cmd/internal/bench"
)

func (a *app) benchOverloadCmd() *cobra.Command {
	var o bench.OverloadOptions
	cmd := &cobra.Command{
		Use: "overload", Short: "Offer a cluster more than it takes, and see what it still does", Args: exactly(),
		Long: `Starts a cluster of three servers with simulated nodes, which end all actions at once. First it
measures what the cluster takes from clients that wait for each answer. Then it offers multiples of
that, at a rate that does not depend on the answers.

"goodput" is what was accepted. Refused requests got a delay after which to try again; "retry" is the
median of it. Unsent requests found all connections busy, and failed ones were answered in no other
way. "terms" counts changes of the leader's term and "nodes" is the fewest nodes that were up: a node
that loses its lease is down. "read p99" is of linearizable reads that were made all the time.

Clients and servers share this machine, so clients take a part of what the servers could use.`,
		Example: "  rota bench overload\n  rota bench overload --factors 2,10 --duration 30s -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := bench.Overload(cmd.Context(), o, func(s bench.OverloadStep) {
				fmt.Fprintf(a.err, "%.0f times: %.0f a second accepted, %.0f %% of what the cluster takes\n", s.Factor, s.Goodput, s.GoodputPercent)
			})
			if err != nil {
				return err
			}
			f := func(v float64) string { return fmt.Sprintf("%.0f", v) }
			rows := [][]string{{"-", f(r.Capacity.PerSecond), f(r.Capacity.PerSecond), "100", f(r.Capacity.P50MS), f(r.Capacity.P99MS), "", "", "", "", "", "", "", ""}}
			for _, s := range r.Steps {
				rows = append(rows, []string{
					f(s.Factor), f(s.Offered), f(s.Goodput), f(s.GoodputPercent), f(s.P50MS), f(s.P99MS), fmt.Sprint(s.Refused), f(s.RefusedP99MS), f(s.RetryAfterMS),
					fmt.Sprint(s.Unsent), fmt.Sprint(s.Failed), fmt.Sprint(s.TermChanges), fmt.Sprintf("%d of %d", s.NodesUpMin, r.Nodes), f(s.ReadP99MS),
				})
			}
			return a.printValue(r, []string{"times", "offered/s", "goodput/s", "%", "p50 ms", "p99 ms", "refused", "refusal p99 ms", "retry ms",
				"unsent", "failed", "terms", "nodes", "read p99 ms"}, rows)
		},
	}
	fs := cmd.Flags()
	clusterFlags(fs, &o.Cluster)
	fs.Float64SliceVar(&o.Factors, "factors", []float64{1, 2, 5, 10}, "multiples of what the cluster takes")
	fs.DurationVar(&o.Duration, "duration", 10*time.Second, "measured time of each figure")
	fs.IntVar(&o.Cluster.SimulatedNodes, "simulated-nodes", 16, "nodes that end actions at once without running them")
	fs.IntVar(&o.Submitters, "submitters", 32, "concurrent requests while it is measured what the cluster takes")
	fs.IntVar(&o.InFlight, "in-flight", 2048, "most requests that wait for an answer")
	fs.IntVar(&o.Batch, "batch", 10, "actions in a request")
	fs.IntVar(&o.Size, "size", 300, "bytes of an encoded action")
	fs.IntVar(&o.Queue, "queue", 20_000, "most actions that may be queued")
	return cmd
}
