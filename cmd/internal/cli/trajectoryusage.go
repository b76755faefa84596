package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) trajectoryUsageCmd() *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "usage ID", Short: "Measure what the running actions of a trajectory use now", Args: exactly("ID"),
		Long: `Measures what each running action of a trajectory uses: cores, CPU time and memory, of all its
processes together. Memory leaves out files in the page cache that were not used lately. What an
action used that has ended is in "rota action get" and "rota trajectory summary".`,
		Example: "  rota trajectory usage 7\n  rota trajectory usage 7 --interval 5s -o json",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			if interval < 0 {
				return usageErrorf("--interval is %v; it must be 0 to 10s", interval)
			}
			resp, err := call(ctx, a, c.Usage.GetTrajectoryUsage, &rotav1.GetTrajectoryUsageRequest{TrajectoryId: id, Interval: durationpb.New(interval)})
			if err != nil {
				return err
			}
			return a.printUsage(resp, interval > 0)
		}),
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time over which cores are measured, at most 10s; 0: measure at once, without cores")
	return cmd
}

func (a *app) printUsage(u *rotav1.GetTrajectoryUsageResponse, cores bool) error {
	rows := make([][]string, 0, len(u.Actions))
	for _, use := range u.Actions {
		used := "-"
		if cores {
			used = fmt.Sprintf("%.2f", use.Cores)
		}
		rows = append(rows, []string{strconv.FormatUint(use.ActionId, 10), strconv.FormatUint(uint64(use.Attempt), 10), used,
			formatDuration(use.CpuTime.AsDuration()), formatSize(use.MemoryBytes), peakText(use), formatSize(use.CacheBytes)})
	}
	if u.DiskBytes > 0 {
		a.say("%s of %s are free on the disk that has its directory", formatSize(u.DiskFreeBytes), formatSize(u.DiskBytes))
	}
	return a.print(u, []string{"action", "attempt", "cores", "cpu time", "memory", "memory peak", "page cache"}, rows)
}

// peakText is the most memory that an action has had, where its node knows.
func peakText(u *rotav1.ActionUsage) string {
	if u.MemoryPeakBytes == 0 {
		return "-"
	}
	return formatSize(u.MemoryPeakBytes)
}
