package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rota/agent/runtime/container"
	"rota/cmd/internal/bench"
)

// dockerSocket is where Docker listens, unless it is told otherwise.
const dockerSocket = "/run/docker.sock"

func (a *app) benchSandboxesCmd() *cobra.Command {
	var (
		o     bench.SandboxesOptions
		parts []string
	)
	cmd := &cobra.Command{
		Use: "sandboxes", Short: "Compare sandboxes with docker exec, docker run and ctr run", Args: exactly(),
		Long: `Starts a cluster of three servers and an agent that runs containers, and measures, beside
the Docker and the ctr of this machine:

  actions  a command that does nothing in an open sandbox, one after the other. container:
           an action of a trajectory with an image; directory: of one without; node: only
           what the node does for it, without the cluster; docker: docker update --cpus and
           docker exec, through Docker's API over its socket
  busy     the same in --busy sandboxes at once. The agent declares more cores than there are
  opening  --opening containers of one image. Those of rota are opened at once, and count as
           open when their first command has ended; those of docker run (through the API) and
           ctr run one after the other. The ratio compares the time until all are open
  first    the first command of each of --opening trajectories with an image that are opened at
           once, submitted --think after its trajectory was opened; only the command counts
  idle     what --idle sandboxes cost that do nothing: CPU time, and memory for each

All ways take turns in an order that rotates. A round before the first is not measured. The
ratio is the time of a way over that of the container in the same round: the median of all
rounds, the least and the greatest. The same work, done before each turn on all cores, shows
how noisy the machine was.

It runs as root. The image is made of busybox, needs no registry, and stays in containerd's
namespace rota. No other sandboxes of rota may be open in that containerd.`,
		Example: `  rota bench sandboxes
  rota bench sandboxes --parts actions,busy --rounds 10 -o json
  rota bench sandboxes --parts idle --idle 50 --docker ""`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, p := range parts {
				o.Parts = append(o.Parts, bench.SandboxPart(p))
			}
			if err := checkSandboxes(&o); err != nil {
				return err
			}
			r, err := bench.Sandboxes(cmd.Context(), o, func(part bench.SandboxPart, round int, way string, p50MS float64) {
				if part == bench.SandboxIdle {
					fmt.Fprintf(a.err, "%d sandboxes are open\n", o.Idle)
					return
				}
				fmt.Fprintf(a.err, "%s, round %d of %d, %-9s median %.1f ms\n", part, round+1, o.Rounds, way, p50MS)
			})
			if err != nil {
				return err
			}
			if a.json() {
				return writeJSON(a.out, r)
			}
			writeSandboxes(a.out, r)
			return nil
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().StringVar(&o.Containerd, "containerd", container.DefaultAddress, "socket of containerd")
	cmd.Flags().StringVar(&o.Docker, "docker", found(dockerSocket), `socket of Docker; "": nothing is compared with it`)
	cmd.Flags().StringVar(&o.Ctr, "ctr", findProgram("ctr"), `program ctr of containerd; "": nothing is compared with it`)
	cmd.Flags().StringVar(&o.Init, "rota-init", "", "first process of containers (default: rota-init beside rota)")
	cmd.Flags().StringSliceVar(&parts, "parts", []string{"actions", "busy", "opening", "first", "idle"}, "parts to measure")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 5, "number of rounds; each has a turn of every way")
	cmd.Flags().IntVar(&o.Actions, "actions", 40, "actions in each sandbox in a turn")
	cmd.Flags().IntVar(&o.Busy, "busy", 32, "sandboxes that are busy at once")
	cmd.Flags().IntVar(&o.Opening, "opening", 100, "sandboxes that are opened in a turn")
	cmd.Flags().DurationVar(&o.Think, "think", 5*time.Second, "time between the opening of a trajectory and its first command, in the part first")
	cmd.Flags().IntVar(&o.Idle, "idle", 200, "sandboxes that are open and do nothing")
	cmd.Flags().DurationVar(&o.IdleFor, "idle-for", 30*time.Second, "how long they do nothing")
	words(cmd, "parts", "actions", "busy", "opening", "first", "idle")
	return cmd
}

// found is a path if there is something.
func found(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// findProgram is the path of a program; empty without one.
func findProgram(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

func checkSandboxes(o *bench.SandboxesOptions) error {
	switch {
	case o.Rounds < 1 || o.Actions < 1:
		return usageErrorf("--rounds and --actions must be at least 1")
	case o.Busy < 1 || o.Opening < 1 || o.Idle < 1:
		return usageErrorf("--busy, --opening and --idle must be at least 1")
	case o.IdleFor <= 0:
		return usageErrorf("--idle-for must be more than 0")
	case o.Think < 0:
		return usageErrorf("--think must not be negative")
	case o.Containerd == "":
		return usageErrorf("--containerd must be the socket of a containerd")
	}
	return nil
}

// writeSandboxes writes the comparison for people.
func writeSandboxes(w io.Writer, r *bench.SandboxesResult) {
	f := func(v float64) string { return fmt.Sprintf("%.1f", v) }
	var rows [][]string
	for _, s := range r.Figures {
		rows = append(rows, []string{string(s.Part), strconv.Itoa(s.Sandboxes), s.Way, f(s.P50MS), f(s.P99MS), f(s.RoundMS),
			fmt.Sprintf("%.2f", s.Ratio.Median), fmt.Sprintf("%.2f to %.2f", s.Ratio.Min, s.Ratio.Max)})
	}
	if len(rows) > 0 {
		writeTable(w, []string{"part", "sandboxes", "way", "p50 ms", "p99 ms", "round ms", "ratio", "of rounds"}, rows)
	}
	if i := r.Idle; i != nil {
		fmt.Fprintf(w, "\n%d idle sandboxes, %.0f s: their processes and the %d that watch them used %.0f ms of CPU time; servers and agent %.0f ms, without sandboxes %.0f ms\n",
			i.Sandboxes, i.Seconds, i.Watchers, i.SandboxCPUMS, i.ClusterCPUMS, i.ClusterCPUBeforeMS)
		fmt.Fprintf(w, "memory for each, in MiB: its first process %.2f; beyond that %.2f, of which %.2f are of what watches it and %.2f of the agent\n",
			i.ProcessMiB, i.BeyondMiB, i.WatcherMiB, i.AgentMiB)
	}
	fmt.Fprintf(w, "\n%d cores; rounds: %d; load average before: %.1f\n", r.Cores, r.Rounds, r.LoadAverage)
	fmt.Fprintf(w, "noise: %v\n", r.Noise)
}
