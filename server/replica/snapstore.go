package replica

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"rota/internal/failpoint"
)

// snapshotsRetained is how many snapshots are kept. The log reaches back past
// the oldest of them (see Config.TrailingLogs), so that a damaged newest one
// costs a replay and not the replica.
const snapshotsRetained = 2

// snapStore ends the process if a snapshot cannot be written: raft would go on
// and try again at the next interval, on a disk that has already failed.
type snapStore struct {
	raft.SnapshotStore
	dir   string
	guard *guard
}

// unfinished is what raft adds to the name of a snapshot that it still writes.
const unfinished = ".tmp"

func openSnapshots(base string, g *guard, logger hclog.Logger) (*snapStore, error) {
	dir := filepath.Join(base, "snapshots")
	if err := removeUnfinished(dir); err != nil {
		return nil, err
	}
	store, err := raft.NewFileSnapshotStoreWithLogger(base, snapshotsRetained, logger.Named("snapshot"))
	if err != nil {
		return nil, fmt.Errorf("open snapshots in %s: %w", dir, err)
	}
	return &snapStore{SnapshotStore: store, dir: dir, guard: g}, nil
}

// removeUnfinished removes snapshots that a crash cut short: raft ignores them
// and would keep them for ever.
func removeUnfinished(dir string) error {
	tmp, err := filepath.Glob(filepath.Join(dir, "*"+unfinished))
	if err != nil {
		return err
	}
	for _, path := range tmp {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove unfinished snapshot: %w", err)
		}
	}
	return nil
}

// newest returns the last index and term of the newest snapshot, or zeros.
func (s *snapStore) newest() (position, error) {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return position{}, err
	}
	return position{list[0].Index, list[0].Term}, nil
}

// Create implements raft.SnapshotStore. It makes the names of the files durable,
// which raft does not: a power loss would leave a snapshot without content, and
// the log that it replaced would be gone.
func (s *snapStore) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration,
	confIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	var sink raft.SnapshotSink
	err := s.guard.write("create snapshot", func() (err error) {
		if sink, err = s.SnapshotStore.Create(version, index, term, conf, confIndex, trans); err != nil {
			return err
		}
		return syncDir(filepath.Join(s.dir, sink.ID()+unfinished))
	})
	if err != nil {
		return nil, err
	}
	return &snapSink{SnapshotSink: sink, guard: s.guard}, nil
}

type snapSink struct {
	raft.SnapshotSink
	guard *guard
}

func (s *snapSink) Write(p []byte) (n int, err error) {
	err = s.guard.write("write snapshot", func() (err error) {
		n, err = s.SnapshotSink.Write(p)
		return err
	})
	return n, err
}

func (s *snapSink) Close() error {
	failpoint.Hit(failpoint.SnapshotWritten)
	err := s.guard.write("finish snapshot", s.SnapshotSink.Close)
	failpoint.Hit(failpoint.SnapshotRenamed)
	return err
}

// ReadFrom hides the one that io.Copy might find in the embedded sink.
func (s *snapSink) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{s}, r)
}
