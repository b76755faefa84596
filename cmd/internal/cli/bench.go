package cli

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/api/httpx"
	"rota/cmd/internal/bench"
)

func (a *app) benchCmd() *cobra.Command {
	return group("bench", "Measure rota on this machine, with real processes and fsync on",
		a.benchSubmitCmd(), a.benchRunCmd(), a.benchOverheadCmd(), a.benchFailoverCmd(), a.benchQueueCmd(), a.benchRestoreCmd(), a.benchOverloadCmd(), a.benchElasticCmd(), a.benchEnginesCmd(), a.benchMigrateCmd(),
		a.benchGatewayCmd(), a.benchSandboxesCmd(), a.benchFilesCmd(), a.benchEtcdCmd(), a.nullServerCmd(), a.offerCmd(), a.bareProxyCmd(), a.suiteCmd())
}

func clusterFlags(fs *pflag.FlagSet, o *bench.ClusterOptions) {
	fs.StringVar(&o.Dir, "dir", "", "folder of the data; its disk is measured (default: a temporary folder)")
}

func etcdFlags(fs *pflag.FlagSet, o *bench.EtcdOptions) {
	fs.StringVar(&o.Etcd, "etcd", "etcd", "etcd server")
	fs.StringVar(&o.Load, "etcd-bench", "bin/etcd-bench", "load generator for etcd")
}

func submitFlags(fs *pflag.FlagSet, o *bench.SubmitOptions) {
	clusterFlags(fs, &o.Cluster)
	fs.IntVar(&o.Cluster.SimulatedNodes, "simulated-nodes", 0,
		"use this many nodes that end actions at once without running them, instead of an agent without free cores")
	fs.DurationVar(&o.Duration, "duration", 10*time.Second, "measured time of each figure, after a second of warm-up")
	fs.IntVar(&o.Size, "size", 300, "bytes of an encoded action")
	fs.IntVar(&o.Batch, "batch", 500, "actions in a request of mode batch")
	fs.IntVar(&o.BatchSubmitters, "batch-submitters", 8, "concurrent requests of mode batch")
	fs.IntVar(&o.Connections, "connections", 32, "connections of modes unary and null")
}

var rateHeader = []string{"what", "submitters", "per second", "p50 ms", "p99 ms", "max ms"}

func rateRow(r bench.Rate) []string {
	return []string{r.What, strconv.Itoa(r.Submitters), fmt.Sprintf("%.0f", r.PerSecond),
		fmt.Sprintf("%.2f", r.P50MS), fmt.Sprintf("%.2f", r.P99MS), fmt.Sprintf("%.2f", r.MaxMS)}
}

func (a *app) benchSubmitCmd() *cobra.Command {
	var (
		o     bench.SubmitOptions
		modes []string
	)
	cmd := &cobra.Command{
		Use: "submit", Short: "Measure how many actions a second a cluster accepts", Args: exactly(),
		Long: `Starts a fresh cluster of three servers for each figure. An action that sleeps holds all
cores of the agent, so submitted actions stay in the queue. With --simulated-nodes the
cluster grants all submitted actions, and simulated nodes report their end. Simulated
nodes run nothing.

  null    requests to a server that does nothing: the limit of the HTTP stack
  unary   a request for each action, straight to the leader
  client  the Go client library, which combines concurrent submissions
  batch   requests of --batch actions each

Latencies are per request. JSON output is one line for each figure.`,
		Example: "  rota bench submit --modes unary --submitters 1,256,1024\n  rota bench submit --modes batch --duration 30s -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, m := range modes {
				o.Modes = append(o.Modes, bench.Mode(m))
			}
			var rows [][]string
			err := bench.Submit(cmd.Context(), o, func(r bench.Rate) error {
				fmt.Fprintf(a.err, "%s, %d submitters: %.0f per second\n", r.What, r.Submitters, r.PerSecond)
				rows = append(rows, rateRow(r))
				if a.json() {
					return writeJSON(a.out, r)
				}
				return nil
			})
			if !a.json() && len(rows) > 0 {
				writeTable(a.out, rateHeader, rows)
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&modes, "modes", []string{"null", "unary", "client", "batch"}, "modes to measure")
	cmd.Flags().IntSliceVar(&o.Submitters, "submitters", []int{1, 256, 1024}, "concurrent submitters")
	submitFlags(cmd.Flags(), &o)
	words(cmd, "modes", "null", "unary", "client", "batch")
	return cmd
}

func (a *app) benchRunCmd() *cobra.Command {
	var o bench.RunOptions
	cmd := &cobra.Command{
		Use: "run", Short: "Measure no-op commands end to end", Args: exactly(),
		Long: `Starts a cluster with an agent and measures three things:

  1. The overhead: it runs no-op commands one at a time, and alternates them with a bare
     fork and exec of the command. The difference of the medians is the overhead.
  2. The throughput: it runs many commands at the same time.
  3. The same with an agent that declares more cores than the machine has. Commands are
     then not pinned to cores.`,
		Example: "  rota bench run -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := bench.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			f := func(v float64) string { return fmt.Sprintf("%.2f", v) }
			return a.printValue(r,
				[]string{"bare ms", "action ms", "action p99 ms", "exec ms", "overhead ms", "per second", "oversubscribed"},
				[][]string{{f(r.BareMS), f(r.ActionMS), f(r.ActionP99MS), f(r.ExecMS), f(r.OverheadMS), f(r.Throughput.PerSecond), f(r.Oversubscribed.PerSecond)}})
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().IntVar(&o.Samples, "samples", 300, "number of commands that run one at a time")
	cmd.Flags().IntVar(&o.Submitters, "submitters", 32, "concurrent commands while throughput is measured")
	cmd.Flags().DurationVar(&o.Duration, "duration", 10*time.Second, "how long to measure each throughput")
	cmd.Flags().IntVar(&o.OversubscribedCores, "oversubscribed-cores", 16, "cores of the oversubscribed agent")
	return cmd
}

func (a *app) benchOverheadCmd() *cobra.Command {
	var (
		o            bench.OverheadOptions
		trajectories []int
	)
	cmd := &cobra.Command{
		Use: "overhead", Short: "Measure the overhead of rota on the executions of coding agents", Args: exactly(),
		Long: `Starts a fresh cluster for each number of trajectories and runs the trajectories for a
while. Each trajectory thinks, runs a command and thinks again, as in the workload
"coding" of rota sim. The processes are real and wait as long as the workload says.
There are cores for all of them. The overhead is the time of an action beyond its
execution.

JSON output is one line for each number of trajectories.`,
		Example: "  rota bench overhead\n  rota bench overhead --trajectories 64 --duration 5m -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows [][]string
			for _, o.Trajectories = range trajectories {
				r, err := bench.Overhead(cmd.Context(), o)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.err, "%d trajectories: %.1f actions a second, overhead %.1f ms\n", r.Trajectories, r.ActionsPerSecond, r.OverheadMS)
				rows = append(rows, overheadRow(r))
				if a.json() {
					if err := writeJSON(a.out, r); err != nil {
						return err
					}
				}
			}
			if !a.json() {
				writeTable(a.out, []string{"trajectories", "actions", "per second", "act ms", "exec ms", "overhead ms", "p50", "overhead %", "CPU %"}, rows)
			}
			return nil
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().IntSliceVar(&trajectories, "trajectories", []int{32, 64, 128}, "numbers of trajectories that are open at the same time")
	cmd.Flags().DurationVar(&o.Duration, "duration", time.Minute, "measured time of each figure")
	cmd.Flags().DurationVar(&o.WarmUp, "warm-up", 10*time.Second, "warm-up time before the measurement")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the workload")
	return cmd
}

func overheadRow(r *bench.OverheadResult) []string {
	f := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	return []string{strconv.Itoa(r.Trajectories), strconv.Itoa(r.Actions), f(r.ActionsPerSecond), f(r.ActMS), f(r.ExecMS),
		f(r.OverheadMS), f(r.OverheadP50MS), f(float64(r.OverheadPPM) / 1e4), f(float64(r.BusyPPM) / 1e4)}
}

func (a *app) benchFailoverCmd() *cobra.Command {
	var (
		o     bench.EtcdOptions
		etcd  bool
		kills int
	)
	cmd := &cobra.Command{
		Use: "failover", Short: "Measure how long a kill -9 of the leader stops decisions", Args: exactly(),
		Long: `Kills the leader of a cluster several times. Each time, it measures from the kill to the
first committed decision that was requested after the kill. With --of-etcd it does the
same with a three-member etcd, for comparison.`,
		Example: "  rota bench failover --kills 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			each := func(i int, took time.Duration) {
				fmt.Fprintf(a.err, "kill %d of %d: %d ms\n", i+1, kills, took.Milliseconds())
			}
			measure := func(ctx context.Context) (*bench.FailoverResult, error) {
				if etcd {
					return bench.EtcdFailover(ctx, o, kills, each)
				}
				return bench.Failover(ctx, o.Submit.Cluster, kills, each)
			}
			r, err := measure(cmd.Context())
			if err != nil {
				return err
			}
			f := func(v float64) string { return fmt.Sprintf("%.0f", v) }
			return a.printValue(r, []string{"kills", "p50 ms", "p99 ms", "max ms"},
				[][]string{{strconv.Itoa(r.Kills), f(r.P50MS), f(r.P99MS), f(r.MaxMS)}})
		},
	}
	clusterFlags(cmd.Flags(), &o.Submit.Cluster)
	etcdFlags(cmd.Flags(), &o)
	cmd.Flags().BoolVar(&etcd, "of-etcd", false, "measure an etcd of three members instead")
	cmd.Flags().IntVar(&kills, "kills", 20, "number of times to kill the leader")
	return cmd
}

func (a *app) benchQueueCmd() *cobra.Command {
	var o bench.QueueOptions
	cmd := &cobra.Command{
		Use: "queue", Short: "Measure the cost of a long queue: memory, snapshot, stall", Args: exactly(),
		Long: `Queues many actions that wait for cores. Then it reads the memory of the servers and
measures the time of a snapshot of the leader. Single submissions are committed during
the snapshot.`,
		Example: "  rota bench queue --actions 1000000 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := bench.Queue(cmd.Context(), o, func(queued int) {
				if queued%(100*o.Batch) == 0 {
					fmt.Fprintf(a.err, "%d queued\n", queued)
				}
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(r.RSSBytes))
			for i := range r.RSSBytes {
				rows = append(rows, []string{fmt.Sprintf("server-%d", i+1), formatSize(r.RSSBytes[i]), formatSize(r.RSSPeakBytes[i]),
					fmt.Sprintf("%.0f", r.SnapshotMS), formatSize(r.SnapshotBytes),
					fmt.Sprintf("%.1f", r.CommitMaxMS), fmt.Sprintf("%.1f", r.SnapshotCommitMaxMS)})
			}
			return a.printValue(r, []string{"server", "memory", "peak", "snapshot ms", "snapshot",
				"max commit ms", "max commit ms in snapshot"}, rows)
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().IntVar(&o.Actions, "actions", 1_000_000, "actions to queue")
	cmd.Flags().IntVar(&o.Size, "size", 300, "bytes of an encoded action")
	cmd.Flags().IntVar(&o.Batch, "batch", 1000, "actions in a request")
	return cmd
}

func (a *app) benchEtcdCmd() *cobra.Command {
	o := bench.EtcdOptions{}
	cmd := &cobra.Command{
		Use: "etcd", Short: "Compare submissions with puts to a three-member etcd", Args: exactly(),
		Long: `Measures etcd and rota in turns; the order changes with each round. Both have three
members or servers on loopback with fsync on. Values have the same size, each figure has
a fresh cluster, and requests go straight to the leader. "make bench-etcd" builds the
programs that it needs. The last line is one JSON object.`,
		Example: "  make bench-etcd",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := bench.Etcd(cmd.Context(), o, func(r bench.Rate) {
				fmt.Fprintf(a.err, "%-8s %5d submitters: %7.0f per second, p50 %.1f ms, p99 %.1f ms\n",
					r.What, r.Submitters, r.PerSecond, r.P50MS, r.P99MS)
			})
			if err != nil {
				return err
			}
			return writeJSON(a.out, r)
		},
	}
	submitFlags(cmd.Flags(), &o.Submit)
	cmd.Flags().DurationVar(&o.BatchDuration, "batch-duration", 30*time.Second, "measured time of batches")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 2, "number of rounds")
	etcdFlags(cmd.Flags(), &o)
	return cmd
}

// nullServerCmd is the server that mode null measures.
func (a *app) nullServerCmd() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use: "null-server", Short: "Answer submissions without doing anything", Args: exactly(), Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			server := httpx.NewServer(bench.NullHandler())
			go func() {
				<-cmd.Context().Done()
				server.Close()
			}()
			_ = server.Serve(l)
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on")
	return cmd
}
