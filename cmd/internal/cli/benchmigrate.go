package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rota/cmd/internal/bench"
)

const (
	// migrateBytesMax bounds what the benchmark moves: it takes about four times that of memory.
	migrateBytesMax = 64 << 30
	// migrateValuesMax is how many values it moves at most.
	migrateValuesMax = 1 << 20
)

func (a *app) benchMigrateCmd() *cobra.Command {
	var o bench.MigrateOptions
	total, value := size(1<<30), size(1<<20)
	cmd := &cobra.Command{
		Use: "migrate", Short: "Compare a migration between KV caches with a bare TLS copy", Args: exactly(),
		Long: `Moves values from one KV cache to another, as agents do for a migration: the target pulls
them from the handler of the source's agent, over TLS and loopback. Both caches are in
memory and in this process. Some of the values are at the target already, under other keys;
they are found by checksums and hashes, and are not moved.

Beside it, a bare copy: as many bytes as the migration moves, from the memory of the source
to other memory, over one TLS connection and with nothing else. Both take turns in an order
that rotates. A round before the first is not measured, so all memory was touched before.
The speed is the time of the copy over the time of the migration in the same round: the
median of all rounds, the least and the greatest; 1 is as fast. The time of a copy of all
bytes, at the same rate, shows what is gained if some are there already.

It takes about four times --size of memory.`,
		Example: `  rota bench migrate
  rota bench migrate --present 50 --size 512MiB --value-size 256KiB -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Bytes, o.ValueBytes = uint64(total), uint64(value)
			if err := checkMigrate(&o); err != nil {
				return err
			}
			r, err := bench.Migrate(cmd.Context(), o, func(round int, what string, took time.Duration) {
				fmt.Fprintf(a.err, "round %d of %d, %-9s %d ms\n", round+1, o.Rounds, what, took.Milliseconds())
			})
			if err != nil {
				return err
			}
			if a.json() {
				return writeJSON(a.out, r)
			}
			writeMigrate(a.out, r)
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "folder of the certificates (default: a temporary folder)")
	cmd.Flags().Var(&total, "size", "bytes of all values")
	cmd.Flags().Var(&value, "value-size", "bytes of each value, 4KiB to 64MiB")
	cmd.Flags().IntVar(&o.PresentPercent, "present", 0, "percentage of the values that are at the target already")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 7, "number of rounds; each has a migration and a copy")
	return cmd
}

func checkMigrate(o *bench.MigrateOptions) error {
	switch {
	case o.Rounds < 1:
		return usageErrorf("--rounds must be at least 1")
	case o.PresentPercent < 0 || o.PresentPercent > 99:
		return usageErrorf("--present is %d; it must be between 0 and 99, so that something is to be moved", o.PresentPercent)
	case o.ValueBytes < 4<<10 || o.ValueBytes > 64<<20:
		return usageErrorf("--value-size is %s; it must be between 4 KiB and 64 MiB", formatSize(o.ValueBytes))
	case o.Bytes < o.ValueBytes || o.Bytes > migrateBytesMax || o.Bytes/o.ValueBytes > migrateValuesMax:
		return usageErrorf("--size is %s; it must be at least --value-size, at most %s, and at most %d values",
			formatSize(o.Bytes), formatSize(migrateBytesMax), migrateValuesMax)
	}
	return nil
}

// writeMigrate writes the comparison for people.
func writeMigrate(w io.Writer, r *bench.MigrateResult) {
	rate := func(bytes uint64, ms float64) string { return fmt.Sprintf("%.0f", float64(bytes)/1e6/(ms/1e3)) }
	f := func(ms float64) string { return fmt.Sprintf("%.0f", ms) }
	writeTable(w, []string{"what", "bytes", "ms", "MB a second"}, [][]string{
		{"migration", formatSize(r.MovedBytes), f(r.MigrationMS), rate(r.MovedBytes, r.MigrationMS)},
		{"bare copy", formatSize(r.MovedBytes), f(r.CopyMS), rate(r.MovedBytes, r.CopyMS)},
		{"bare copy of all", formatSize(r.Bytes), f(r.CopyAllMS), rate(r.Bytes, r.CopyAllMS)},
	})
	fmt.Fprintf(w, "\nspeed beside the bare copy: %.2f (%.2f to %.2f); rounds: %d\n", r.Speed.Median, r.Speed.Min, r.Speed.Max, r.Rounds)
	fmt.Fprintf(w, "values of %s; %s were at the target already\n", formatSize(r.ValueBytes), formatSize(r.PresentBytes))
	fmt.Fprintf(w, "noise: %v\n", r.Noise)
}
