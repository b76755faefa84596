package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rota/cmd/internal/bench"
)

const (
	// fileBytesMax bounds what the benchmark copies: it takes about five times that of disk.
	fileBytesMax = 64 << 30
	// filesMax is how many files it copies at most.
	filesMax = 1 << 16
)

func (a *app) benchFilesCmd() *cobra.Command {
	var o bench.FilesOptions
	total := size(1 << 30)
	cmd := &cobra.Command{
		Use: "files", Short: "Compare uploads to and downloads from a trajectory with a bare TLS copy", Args: exactly(),
		Long: `Starts a cluster with TLS and copies files to the directory of a trajectory and back, as rota
cp does: through a server, which passes them on to the agent. It copies --size bytes as one
file, and as --files files one after the other.

Beside it, a bare copy: as many bytes from file to file, over one TLS connection and nothing
else. All ways take turns in an order that rotates. A round before the first is not measured.
The speed is the time of the bare copy over that of a way in the same round: the median of
all rounds, the least and the greatest; 1 is as fast. Bytes go through two TLS connections on
their way to the agent, and all processes share the cores of this machine.

It takes about six times --size of disk space.`,
		Example: "  rota bench files\n  rota bench files --size 256MiB --files 1000 --rounds 3 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Bytes = int64(total)
			if err := checkBenchFiles(&o); err != nil {
				return err
			}
			r, err := bench.Files(cmd.Context(), o, func(round int, way string, took time.Duration) {
				fmt.Fprintf(a.err, "round %d of %d, %-20s %d ms\n", round+1, o.Rounds, way, took.Milliseconds())
			})
			if err != nil {
				return err
			}
			var rows [][]string
			for _, f := range r.Figures {
				rows = append(rows, []string{f.Way, fmt.Sprintf("%.0f", f.MS), fmt.Sprintf("%.0f", float64(r.Bytes)/1e3/f.MS),
					fmt.Sprintf("%.2f (%.2f to %.2f)", f.Speed.Median, f.Speed.Min, f.Speed.Max)})
			}
			err = a.printValue(r, []string{"way", "ms", "MB a second", "speed"}, rows)
			if !a.json() {
				fmt.Fprintf(a.out, "\nrounds: %d; load average before: %.1f\nnoise: %v\n", r.Rounds, r.LoadAverage, r.Noise)
			}
			return err
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().Var(&total, "size", "bytes that are copied each time")
	cmd.Flags().IntVar(&o.Files, "files", 64, "number of files, beside the one")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "number of rounds; each has a turn of every way")
	return cmd
}

func checkBenchFiles(o *bench.FilesOptions) error {
	switch {
	case o.Rounds < 1:
		return usageErrorf("--rounds must be at least 1")
	case o.Files < 1 || o.Files > filesMax:
		return usageErrorf("--files is %d; it must be between 1 and %d", o.Files, filesMax)
	case o.Bytes < int64(o.Files) || o.Bytes > fileBytesMax:
		return usageErrorf("--size is %s; it must be at least a byte for each file, and at most %s", formatSize(uint64(max(0, o.Bytes))), formatSize(fileBytesMax))
	}
	return nil
}
