package replica

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// The schedule of hashicorp/raft issue 695. A leader is cut off and its lease is
// long; a successor is elected and commits; then the old leader hears heartbeats
// of the new term, but no data yet, and a client proposes to it. On raft's fast
// path the heartbeat raises the term under the running leader loop, and the
// proposal is stamped with the successor's term at an index that the successor
// has used: two different entries with the same index and term, for good.
//
// The second case restores the fast path, to show that the first would notice. On a
// busy machine an RPC with data may come before the proposal, so it has some tries.
func TestHeartbeatsDoNotBypassRaft(t *testing.T) {
	t.Run("every RPC takes one way", func(t *testing.T) {
		if stage695(t, false) {
			t.Error("logs diverged")
		}
	})
	t.Run("fast path diverges (#695)", func(t *testing.T) {
		for range 5 {
			if stage695(t, true) {
				return
			}
		}
		t.Error("logs never diverged")
	})
}

func stage695(t *testing.T, fast bool) (diverged bool) {
	var late atomic.Bool // data RPCs do not reach the old leader yet
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.unsafeFastHeartbeats = fast
		if cfg.ServerID == "s1" {
			cfg.HeartbeatTimeout, cfg.LeaderLease = time.Minute, time.Minute
			cfg.intercept = func(cmd any) any {
				a, ok := cmd.(*raft.AppendEntriesRequest)
				if ok && late.Load() && a.PrevLogEntry != 0 {
					return &raft.AppendEntriesResponse{Term: a.Term, LastLog: a.PrevLogEntry}
				}
				return nil
			}
		}
	})
	old := c.nodes[0]
	if c.leader() != old {
		if err := c.leader().replica.TransferLeadership(c.ctx(), old.id); err != nil {
			t.Fatal(err)
		}
		eventually(t, "s1 leads", old.replica.IsLeader)
	}
	c.propose(old, "before")
	c.agree()
	term := old.replica.Status().Term

	old.stream.partition(true, true)
	late.Store(true)
	var next *node
	eventually(t, "a successor", func() bool {
		for _, nd := range c.nodes[1:] {
			if nd.replica.IsLeader() && nd.replica.Status().Term > term {
				next = nd
			}
		}
		return next != nil
	})
	c.propose(next, "by the successor")

	old.stream.partition(false, true)
	eventually(t, "the old leader hears of the new term", func() bool { return old.replica.raft.CurrentTerm() > term })
	err := old.replica.raft.Apply([]byte{}, 0).Error() // an empty entry, past our own checks
	t.Logf("proposal on the old leader: %v", err)

	late.Store(false)
	old.stream.partition(false, false)
	for i := range 3 {
		c.propose(next, fmt.Sprint("after ", i))
	}
	index := next.machine.Applied()
	eventually(t, "the old leader catches up", func() bool { return old.machine.Applied() >= index })
	return !sameLogs(t, old, next, index)
}

// sameLogs compares two logs up to an index.
func sameLogs(t *testing.T, a, b *node, last uint64) bool {
	t.Helper()
	for i := uint64(1); i <= last; i++ {
		var x, y raft.Log
		if err := a.replica.store.logs.GetLog(i, &x); err != nil {
			t.Fatal(err)
		}
		if err := b.replica.store.logs.GetLog(i, &y); err != nil {
			t.Fatal(err)
		}
		if x.Term != y.Term || x.Type != y.Type || string(x.Data) != string(y.Data) {
			t.Logf("entry %d: %s has %v in term %d, %s has %v in term %d", i, a.id, x.Type, x.Term, b.id, y.Type, y.Term)
			return false
		}
	}
	return true
}

// askVote asks a server for its vote, as a candidate that is far ahead.
func askVote(t *testing.T, candidate, voter *node, term uint64) (vote, prevote bool) {
	t.Helper()
	trans := raft.NewNetworkTransport(listen(t, "127.0.0.1:0"), 1, testPatience, nil)
	defer trans.Close()
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(candidate.id), Addr: []byte(candidate.address)}
	pre := raft.RequestPreVoteRequest{RPCHeader: header, Term: term, LastLogIndex: 1 << 40, LastLogTerm: term}
	var preResp raft.RequestPreVoteResponse
	if err := trans.RequestPreVote(raft.ServerID(voter.id), raft.ServerAddress(voter.address), &pre, &preResp); err != nil {
		t.Fatal(err)
	}
	req := raft.RequestVoteRequest{RPCHeader: header, Term: term, LastLogIndex: 1 << 40, LastLogTerm: term, LeadershipTransfer: true}
	var resp raft.RequestVoteResponse
	if err := trans.RequestVote(raft.ServerID(voter.id), raft.ServerAddress(voter.address), &req, &resp); err != nil {
		t.Fatal(err)
	}
	return resp.Granted, preResp.Granted
}

// Each of these makes a store open cleanly with its newest entry missing.
func TestQuarantine(t *testing.T) {
	for name, test := range map[string]struct {
		kind StoreKind
		lose func(t *testing.T, nd *node)
	}{
		"boltdb, bit flip in the newest meta page": {BoltDB, flipNewestMeta},
		"boltdb, only the mark knows":              {BoltDB, func(t *testing.T, nd *node) { dropLastEntry(t, nd, BoltDB) }},
		"wal, bit flip in the newest append":       {WAL, flipNewestAppend},
		"wal, the newest file is missing":          {WAL, removeNewestSegment},
		"wal, the folder is missing":               {WAL, removeWAL},
		"wal, only the mark knows":                 {WAL, func(t *testing.T, nd *node) { dropLastEntry(t, nd, WAL) }},
	} {
		t.Run(name, func(t *testing.T) { testQuarantine(t, test.kind, test.lose) })
	}
}

func testQuarantine(t *testing.T, kind StoreKind, lose func(*testing.T, *node)) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.LogStore = kind })
	lead := c.leader()
	for i := range 5 {
		c.propose(lead, fmt.Sprint(i))
	}
	before := c.agree()
	f, other := c.followers()[0], c.followers()[1]
	c.kill(f)
	lose(t, f)
	c.kill(other)
	c.kill(lead)

	// Restarted twice: the first start may overwrite the evidence.
	c.start(f, nil)
	c.kill(f)
	c.start(f, nil)
	s := f.replica.Status()
	if !s.Quarantined || s.LastIndex >= before.Applied {
		t.Fatalf("opened with %d of %d entries, quarantined: %v", s.LastIndex, before.Applied, s.Quarantined)
	}
	t.Log(s.Reason)
	if vote, prevote := askVote(t, lead, f, 1000); vote || prevote {
		t.Errorf("quarantined server granted vote %v, pre-vote %v", vote, prevote)
	}
	if got := f.replica.raft.ReloadableConfig().HeartbeatTimeout; got != never {
		t.Errorf("quarantined server stands for election after %v", got)
	}

	c.start(lead, nil)
	c.start(other, nil)
	c.leader()
	eventually(t, "the quarantine ends", func() bool { return !f.replica.Status().Quarantined })
	if got := c.agree(); len(got.Names) != 5 {
		t.Errorf("%d names, want 5", len(got.Names))
	}
	if vote, _ := askVote(t, lead, f, 1000); !vote {
		t.Error("server out of quarantine does not vote")
	}
	c.kill(f)
	c.start(f, nil)
	if f.replica.Status().Quarantined {
		t.Error("quarantined again after a clean restart")
	}
}

// TestLaggingFollower: the log that a follower needs is gone, so it gets a
// snapshot, over a slow connection (hashicorp/raft issue 697).
func TestLaggingFollower(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 10, 21, 10*time.Millisecond
	})
	lead := c.leader()
	c.propose(lead, "0")
	f := c.followers()[0]
	behind := c.agree().Applied
	c.kill(f)
	for i := 1; i <= 100; i++ {
		c.propose(lead, fmt.Sprint(i))
	}
	eventually(t, "the log is compacted", func() bool { return lead.replica.Status().FirstIndex > behind+1 })
	f.stream = listen(t, f.address)
	f.stream.delay = 5 * time.Millisecond
	c.start(f, nil)
	if got := c.agree(); len(got.Names) != 101 {
		t.Errorf("%d names, want 101", len(got.Names))
	}
	eventually(t, "the follower has a snapshot", func() bool { return f.replica.Status().SnapshotIndex > behind })
	c.kill(f)
	c.start(f, nil)
	c.propose(lead, "last")
	if got := c.agree(); len(got.Names) != 102 {
		t.Errorf("%d names after a restart, want 102", len(got.Names))
	}
	if f.replica.Status().Quarantined {
		t.Error("a snapshot was taken for a loss")
	}
}

// The answer to the first append behind an installed snapshot is lost, so the
// leader sends it again. Raft alone asks for the snapshot for ever.
func TestAppendBehindSnapshotIsRepeated(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 10, 21, time.Hour
	})
	lead := c.leader()
	c.propose(lead, "0")
	f := c.followers()[0]
	behind := c.agree().Applied
	c.kill(f)
	for i := 1; i <= 100; i++ {
		c.propose(lead, fmt.Sprint(i))
	}
	lead = c.leader()
	if err := lead.replica.TakeSnapshot(c.ctx()); err != nil {
		t.Fatal(err)
	}
	if first := lead.replica.Status().FirstIndex; first <= behind+1 {
		t.Fatalf("the log still starts at %d", first)
	}
	c.start(f, nil)
	c.propose(lead, "behind the snapshot")
	c.agree()
	list, err := f.replica.store.snaps.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("the follower got no snapshot: %v", err)
	}
	snap := list[0]
	if f.replica.termAt(snap.Index+1) == 0 {
		t.Fatal("nothing was appended behind the snapshot: nothing was tested")
	}
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(lead.id), Addr: []byte(lead.address)}
	req := raft.AppendEntriesRequest{
		RPCHeader: header, Term: lead.replica.Status().Term,
		PrevLogEntry: snap.Index, PrevLogTerm: snap.Term,
	}
	var resp raft.AppendEntriesResponse
	if err := lead.replica.trans.AppendEntries(raft.ServerID(f.id), raft.ServerAddress(f.address), &req, &resp); err != nil {
		t.Fatal(err)
	}
	if !resp.Success {
		t.Errorf("refused to append behind its own snapshot at %d", snap.Index)
	}
	req.PrevLogTerm++
	if err := lead.replica.trans.AppendEntries(raft.ServerID(f.id), raft.ServerAddress(f.address), &req, &resp); err != nil {
		t.Fatal(err)
	}
	if resp.Success {
		t.Error("accepted another history")
	}
}
