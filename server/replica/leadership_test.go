package replica

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// compacted are entries of which none but the cached ones can be read, once cut.
type compacted struct {
	LogStore
	cut *atomic.Bool
}

func (s compacted) GetLog(index uint64, l *raft.Log) error {
	if s.cut.Load() {
		return raft.ErrLogNotFound
	}
	return s.LogStore.GetLog(index, l)
}

// A leader that cannot read for a moment what it needs is ready later: nobody would replace it.
func TestALeaderIsReadyAfterAnError(t *testing.T) {
	var cut atomic.Bool
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.WrapLogs = func(s LogStore) LogStore { return compacted{s, &cut} }
	})
	nd := c.nodes[0]
	c.propose(c.leader(), "x")
	c.kill(nd)
	c.start(nd, nil)
	r := c.leader().replica
	snapshots := filepath.Join(nd.dir, "snapshots")
	if err := os.Rename(snapshots, snapshots+".away"); err != nil {
		t.Fatal(err)
	}
	cut.Store(true)
	r.endLeadership()
	established := make(chan struct{})
	go func() {
		r.establish(t.Context())
		close(established)
	}()
	time.Sleep(2 * establishRetry)
	if r.IsLeader() {
		t.Fatal("it leads without what it needs: the test shows nothing")
	}
	if err := os.Rename(snapshots+".away", snapshots); err != nil {
		t.Fatal(err)
	}
	<-established
	if !r.IsLeader() {
		t.Error("it gave up")
	}
}
