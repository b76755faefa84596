package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rota/api/backoff"
	"rota/api/client"
	"rota/server/backup"
)

// backupAgent saves a backup whenever one is due.
type backupAgent struct {
	a        *app
	dir      string
	interval time.Duration
	retain   int
	metrics  string

	// copies are those in an object store; nil without --copy-to.
	copies *copies

	standby  bool // it was said that another process has the folder
	saved    int
	failures int
}

// backupRetry is the longest pause after a failure, and before the folder is looked at again.
const backupRetry = 10 * time.Second

func (a *app) backupAgentCmd() *cobra.Command {
	b, copyTo := backupAgent{a: a}, ""
	cmd := &cobra.Command{
		Use: "agent DIR", Short: "Save backups at intervals, and keep the newest", Args: exactly("DIR"),
		Long: `Saves a backup to the folder DIR whenever the newest one there is older than --interval, and
removes the oldest beyond --retain after that. It runs until it is stopped. Started again, it
goes on from what is in the folder.

Several agents may have the same folder, also on several machines if its file system has
locks: one of them saves, and the others wait until that one is gone. Each prints a line for
each backup and each failure. With --copy-to each backup is copied to an object store as
PREFIX/CLUSTER-ID/NAME, and tried again until it is there or the next one is. The oldest copies of
the same cluster beyond --retain are removed. With --metrics, the agent writes a file for the
textfile collector of the Prometheus node exporter.`,
		Example: "  rota operator snapshot agent /var/backups/rota --interval 1h --retain 48\n" +
			"  rota operator snapshot agent /var/backups/rota --copy-to s3://backups/rota",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if b.interval < time.Second || b.retain < 1 {
				return usageErrorf("--interval must be at least 1s, and --retain at least 1")
			}
			b.dir = args[0]
			var err error
			if b.copies, err = newCopies(copyTo, b.retain); err != nil {
				return err
			}
			return b.run(ctx, c)
		}),
	}
	cmd.Flags().DurationVar(&b.interval, "interval", time.Hour, "how old the newest backup may get")
	cmd.Flags().IntVar(&b.retain, "retain", 24, "how many backups to keep")
	cmd.Flags().StringVar(&copyTo, "copy-to", "", "s3://BUCKET/PREFIX, where each backup is copied to, and as many are kept")
	cmd.Flags().StringVar(&b.metrics, "metrics", "", "file for the textfile collector, such as DIR/rota.prom")
	return cmd
}

func (b *backupAgent) run(ctx context.Context, c *client.Client) error {
	folder, err := b.take(ctx)
	if err != nil {
		return ignoreCanceled(ctx, err)
	}
	defer folder.Close()
	if list, err := folder.List(); err == nil && b.copies != nil && len(list) > 0 {
		b.copies.missing = list[len(list)-1].Path // perhaps: a copy is made again under its name
	}
	for {
		list, err := folder.List()
		if err != nil {
			return err
		}
		var due time.Duration
		if len(list) > 0 {
			due = b.interval - time.Since(list[len(list)-1].Time)
		}
		if due > 0 && !b.copies.incomplete() {
			if backoff.Sleep(ctx, due) != nil {
				return nil
			}
			continue
		}
		if err := b.save(ctx, c, folder, due <= 0); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			b.failures++
			b.a.say("no backup: %v; trying again", err)
			if err := b.report(folder, nil); err != nil {
				return err
			}
			if backoff.Sleep(ctx, min(b.interval, backupRetry)) != nil {
				return nil
			}
		}
	}
}

// ignoreCanceled returns nil for an error that comes of the end of the process.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// take waits for the folder.
func (b *backupAgent) take(ctx context.Context) (*backup.Folder, error) {
	for {
		folder, err := backup.Take(b.dir, b.retain)
		if !errors.Is(err, backup.ErrTaken) {
			return folder, err
		}
		if !b.standby {
			b.standby = true
			b.a.say("%v: waiting", err)
		}
		if err := backoff.Sleep(ctx, min(b.interval, backupRetry)); err != nil {
			return nil, err
		}
	}
}

// save saves a backup if one is due, else it copies the one that has no copy. A store that is away
// does not keep the folder from its backups: the next one takes the place of the one without a copy.
func (b *backupAgent) save(ctx context.Context, c *client.Client, folder *backup.Folder, due bool) error {
	if !due && b.copies.incomplete() {
		path := b.copies.missing
		if err := b.copies.add(ctx); err != nil {
			return fmt.Errorf("the copy of the backup %s: %w", path, err)
		}
		b.a.say("%s has a copy now", path)
		return b.report(folder, nil)
	}
	began := time.Now()
	path := folder.Name(began)
	f, err := saveBackup(ctx, c, path)
	if err != nil {
		return err
	}
	if b.copies != nil {
		b.copies.missing = path
	}
	b.saved++
	kept, err := folder.Prune()
	if err != nil {
		return err
	}
	if err := b.copies.add(ctx); err != nil {
		return fmt.Errorf("the copy of the backup %s: %w", path, err)
	}
	if err := b.report(folder, f); err != nil {
		return err
	}
	return b.a.printLine(f.Header, fmt.Sprintf("%s: cluster %s at index %d, %s in %v, %d kept", path, f.Header.ClusterId, f.Header.Index,
		formatSize(uint64(f.Bytes)), time.Since(began).Round(time.Millisecond), kept))
}

// report writes the file of metrics; f is the newest backup, nil if that is not known.
func (b *backupAgent) report(folder *backup.Folder, f *backup.File) error {
	if b.metrics == "" {
		return nil
	}
	list, err := folder.List()
	if err != nil {
		return err
	}
	var last float64
	if len(list) > 0 {
		last = float64(list[len(list)-1].Time.UnixMilli()) / 1000
	}
	text := fmt.Sprintf(`# HELP rota_backup_last_success_timestamp_seconds Time of the newest backup; 0: there is none.
# TYPE rota_backup_last_success_timestamp_seconds gauge
rota_backup_last_success_timestamp_seconds %.3f
# HELP rota_backup_kept Backups in the folder.
# TYPE rota_backup_kept gauge
rota_backup_kept %d
# HELP rota_backup_saved_total Backups that this agent saved since it began.
# TYPE rota_backup_saved_total counter
rota_backup_saved_total %d
# HELP rota_backup_failures_total Backups that failed since this agent began.
# TYPE rota_backup_failures_total counter
rota_backup_failures_total %d
`, last, len(list), b.saved, b.failures)
	if f != nil {
		text += fmt.Sprintf("# HELP rota_backup_last_size_bytes Size of the newest backup.\n# TYPE rota_backup_last_size_bytes gauge\nrota_backup_last_size_bytes %d\n", f.Bytes)
	}
	tmp := filepath.Join(filepath.Dir(b.metrics), "."+filepath.Base(b.metrics)+".tmp") // the collector reads no such name
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, b.metrics)
}
