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

	// saveTo writes a backup to a path.
	saveTo func(ctx context.Context, path string) (*backup.File, error)
	// copies are those in an object store; nil without --copy-to.
	copies *copies

	standby  bool      // it was said that another process has the folder
	retryAt  time.Time // no backup is tried before it
	saved    int
	bytes    int64 // of the newest backup that this agent saved
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
each backup and each failure. A backup that is dated in the future, as the clock was wrong when it
was made, does not count as the newest and is removed first. With --copy-to each backup is copied to an object store as
PREFIX/CLUSTER-ID/NAME, and tried again until it is there or the next one is. The credentials are read
for each try. The oldest copies of the same cluster beyond --retain are removed. With --metrics, the agent writes a file for the
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
			b.saveTo = func(ctx context.Context, path string) (*backup.File, error) { return saveBackup(ctx, c, path) }
			return b.run(ctx)
		}),
	}
	cmd.Flags().DurationVar(&b.interval, "interval", time.Hour, "how old the newest backup may get")
	cmd.Flags().IntVar(&b.retain, "retain", 24, "how many backups to keep")
	cmd.Flags().StringVar(&copyTo, "copy-to", "", "s3://BUCKET/PREFIX, where each backup is copied to, and as many are kept")
	cmd.Flags().StringVar(&b.metrics, "metrics", "", "file for the textfile collector, such as DIR/rota.prom")
	return cmd
}

func (b *backupAgent) run(ctx context.Context) error {
	folder, err := b.take(ctx)
	if err != nil {
		return ignoreCanceled(ctx, err)
	}
	defer folder.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer b.copies.wait()
	defer cancel()
	if newest, ok, err := newestIn(folder); err == nil && ok {
		b.copies.want(newest.Path) // perhaps: a copy is made again under its name
	}
	for {
		due, err := b.saveIfDue(ctx, folder)
		if err != nil {
			return ignoreCanceled(ctx, err)
		}
		timer := time.NewTimer(min(due, b.copies.begin(ctx)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case done := <-b.copies.ended():
			timer.Stop()
			b.copied(ctx, folder, done)
		}
	}
}

func newestIn(folder *backup.Folder) (newest backup.Kept, ok bool, err error) {
	now := time.Now()
	list, err := folder.List(now)
	newest, ok = backup.Newest(list, now)
	return newest, ok, err
}

// saveIfDue saves a backup if one is due, and returns how long it is until the next one is.
func (b *backupAgent) saveIfDue(ctx context.Context, folder *backup.Folder) (due time.Duration, err error) {
	newest, ok, err := newestIn(folder)
	if err != nil {
		return 0, err
	}
	if ok {
		due = b.interval - time.Since(newest.Time)
	}
	if pause := time.Until(b.retryAt); pause > 0 {
		due = max(due, pause)
	}
	if due > 0 {
		return due, nil
	}
	if err := b.save(ctx, folder); err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		b.failed(folder, fmt.Errorf("no backup: %w; trying again", err))
		pause := min(b.interval, backupRetry)
		b.retryAt = time.Now().Add(pause)
		return pause, nil
	}
	return b.interval, nil
}

// failed tells of a failure.
func (b *backupAgent) failed(folder *backup.Folder, err error) {
	b.failures++
	b.a.say("%v", err)
	b.report(folder)
}

// copied notes how the copy of a backup ended.
func (b *backupAgent) copied(ctx context.Context, folder *backup.Folder, done copied) {
	again := b.copies.note(done)
	switch {
	case done.err == nil:
		b.a.say("%s has a copy now", done.path)
		b.report(folder)
	case ctx.Err() != nil: // the agent ends
	case again:
		b.failed(folder, fmt.Errorf("the copy of the backup %s: %w; trying again", done.path, done.err))
	default:
		b.failed(folder, fmt.Errorf("the copy of the backup %s: %w", done.path, done.err))
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

// save saves a backup. A copy is made beside: a store that is slow or away does not keep the folder
// from its backups.
func (b *backupAgent) save(ctx context.Context, folder *backup.Folder) error {
	began := time.Now()
	path := folder.Name(began)
	f, err := b.saveTo(ctx, path)
	if err != nil {
		return err
	}
	b.copies.want(path)
	b.saved++
	b.bytes = f.Bytes
	kept, err := folder.Prune(time.Now())
	if err != nil {
		b.failed(folder, fmt.Errorf("the backup %s is saved, but an older one cannot be removed: %w", path, err))
	}
	b.report(folder)
	return b.a.printLine(f.Header, fmt.Sprintf("%s: cluster %s at index %d, %s in %v, %d kept", path, f.Header.ClusterId, f.Header.Index,
		formatSize(uint64(f.Bytes)), time.Since(began).Round(time.Millisecond), kept))
}

// report writes the file of metrics, if there is to be one. The agent goes on without it: a full
// disk must not end it.
func (b *backupAgent) report(folder *backup.Folder) {
	if b.metrics == "" {
		return
	}
	if err := b.writeMetrics(folder); err != nil {
		b.a.say("the file of metrics cannot be written: %v", err)
	}
}

func (b *backupAgent) writeMetrics(folder *backup.Folder) error {
	now := time.Now()
	list, err := folder.List(now)
	if err != nil {
		return err
	}
	var last float64
	if newest, ok := backup.Newest(list, now); ok {
		last = float64(newest.Time.UnixMilli()) / 1000
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
	if b.saved > 0 {
		text += fmt.Sprintf("# HELP rota_backup_last_size_bytes Size of the newest backup.\n# TYPE rota_backup_last_size_bytes gauge\nrota_backup_last_size_bytes %d\n", b.bytes)
	}
	if b.copies != nil {
		var copied float64
		if at := b.copies.newest; !at.IsZero() {
			copied = float64(at.UnixMilli()) / 1000
		}
		text += fmt.Sprintf("# HELP rota_backup_last_copy_timestamp_seconds Time of the newest backup that this agent has copied to the object store; 0: none since it began.\n# TYPE rota_backup_last_copy_timestamp_seconds gauge\nrota_backup_last_copy_timestamp_seconds %.3f\n", copied)
	}
	tmp := filepath.Join(filepath.Dir(b.metrics), "."+filepath.Base(b.metrics)+".tmp") // the collector reads no such name
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, b.metrics)
}
