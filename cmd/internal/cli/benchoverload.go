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
measures what the cluster takes from clients that wait for each answer. Then more clients want to
submit multiples of that. Each has one request under way at a time, and repeats it until it is
accepted. They are programs with the Go client, which waits as long as a refusal says. Clients of one
program share what it says, and their requests travel together. With --impatient each client repeats
what is refused at once, in a call of its own.

"wanted" is what clients wanted to submit, "tried" what they sent, with all that was repeated, "accepted" what
was accepted, and "goodput" what ended: until the queue is full, more is accepted than ends. "%" is the goodput
of the best. "calls" are those to servers, "p50" and "p99" how long they took, and "refused" the requests in
them that were refused. "until" is the 99th percentile of the time from the first try until a request was
accepted. "retry" is the median delay that refusals asked for. Failed requests were answered in no other way. "terms"
counts changes of the leader's term and "nodes" is the fewest nodes that were up: a node that loses
its lease is down. "read p99" is of linearizable reads that were made all the time.

Clients, simulated nodes and servers share this machine. "cores" are the CPU seconds that each kind of
process used in a second: the leader, both followers, the nodes and the clients. "per core" is the
goodput for each CPU second of the servers.`,
		Example: "  rota bench overload\n  rota bench overload --factors 2,10 --duration 30s -o json\n  rota bench overload --factors 10 --impatient",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := bench.Overload(cmd.Context(), o, func(s bench.OverloadStep) {
				fmt.Fprintf(a.err, "%.0f times: %.0f a second ended\n", s.Factor, s.Goodput)
				if s.FirstError != "" {
					fmt.Fprintf(a.err, "the first of %d failed requests: %s\n", s.Failed, s.FirstError)
				}
			})
			if err != nil {
				return err
			}
			rows := [][]string{overloadRow(r.Capacity, r.Nodes)}
			for _, s := range r.Steps {
				rows = append(rows, overloadRow(s, r.Nodes))
			}
			return a.printValue(r, []string{"times", "wanted/s", "tried/s", "accepted/s", "goodput/s", "%", "p50 ms", "p99 ms", "until ms", "calls", "refused", "retry ms",
				"failed", "terms", "nodes", "read p99 ms", "cores: leader", "followers", "nodes", "clients", "per core"}, rows)
		},
	}
	fs := cmd.Flags()
	clusterFlags(fs, &o.Cluster)
	fs.Float64SliceVar(&o.Factors, "factors", []float64{1, 2, 5, 10}, "multiples of what the cluster takes")
	fs.DurationVar(&o.Duration, "duration", 10*time.Second, "measured time of each figure")
	fs.IntVar(&o.Cluster.SimulatedNodes, "simulated-nodes", 16, "nodes that end actions at once without running them")
	fs.IntVar(&o.Submitters, "submitters", 32, "clients while it is measured what the cluster takes")
	fs.IntVar(&o.Clients, "clients", 2048, "clients that offer too much")
	fs.IntVar(&o.Programs, "programs", 32, "programs that the clients share, each with one Go client; as many as clients: each has its own")
	fs.BoolVar(&o.Impatient, "impatient", false, "clients repeat refused requests at once, and do not use the Go client")
	fs.StringVar(&o.Cluster.Binary, "server-binary", "", "another build of rota to run as servers (default: this one)")
	fs.IntVar(&o.Batch, "batch", 10, "actions in a request")
	fs.IntVar(&o.Size, "size", 300, "bytes of an encoded action")
	fs.IntVar(&o.Queue, "queue", 20_000, "most actions that may be queued")
	return cmd
}

// overloadRow is the row of one offer in the table.
func overloadRow(s bench.OverloadStep, nodes int) []string {
	f := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	cores := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	times, wanted := "-", "-"
	if s.Factor > 0 {
		times, wanted = f(s.Factor), f(s.Wanted)
	}
	return []string{
		times, wanted, f(s.Tried), f(s.AcceptedRate), f(s.Goodput), f(s.GoodputPercent), f(s.Answer.P50MS), f(s.Answer.P99MS), f(s.Until.P99MS),
		fmt.Sprint(s.Calls), fmt.Sprint(s.Refused), f(s.RetryAfterMS), fmt.Sprint(s.Failed), fmt.Sprint(s.TermChanges),
		fmt.Sprintf("%d of %d", s.NodesUpMin, nodes), f(s.ReadP99MS),
		cores(s.Cores.Leader), cores(s.Cores.Followers), cores(s.Cores.Nodes), cores(s.Cores.Clients), f(s.PerServerCore),
	}
}

// offerCmd is the process of the clients of bench overload.
func (a *app) offerCmd() *cobra.Command {
	return &cobra.Command{
		Use: bench.OfferCommand, Short: "Be the clients of bench overload", Args: exactly(), Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunOffer(cmd.Context(), cmd.InOrStdin(), a.out)
		},
	}
}
