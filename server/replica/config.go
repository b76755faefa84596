package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/api/gen/peer/v1/peerv1connect"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/clock"
)

// Machine is the replicated state machine.
type Machine interface {
	raft.FSM
	// Now is the log time of the newest applied entry, in nanoseconds.
	Now() int64
	// Applied is the raft index of the newest applied entry.
	Applied() uint64
	// WaitApplied returns when Applied is at least index.
	WaitApplied(ctx context.Context, index uint64) error
	// Level is the active feature level.
	Level() state.Level
}

// Server is a member of the cluster.
type Server struct {
	ID string
	// Address is host:port of the one port that a server has.
	Address string
}

// Timings are told what was done and how long it took. Nil: not told.
type Timings struct {
	// Append: entries were written to the log on disk, fsync included.
	Append func(took time.Duration)
	// Commit: an entry that this server proposed is on a majority and applied.
	Commit func(took time.Duration)
	// Apply: an entry with so many commands was applied.
	Apply func(commands int, took time.Duration)
	// LeaderChanged: this server learned who won an election.
	LeaderChanged func()
}

func (t *Timings) setDefaults() {
	if t.Append == nil {
		t.Append = func(time.Duration) {}
	}
	if t.Commit == nil {
		t.Commit = func(time.Duration) {}
	}
	if t.Apply == nil {
		t.Apply = func(int, time.Duration) {}
	}
	if t.LeaderChanged == nil {
		t.LeaderChanged = func() {}
	}
}

// Config is what a replica needs. Zero values mean the defaults that are named.
type Config struct {
	// ServerID is unique in the cluster and never changes.
	ServerID string
	// Dir holds the log, the mark and the snapshots. It is created.
	Dir string
	// LogStore keeps the entries of the log: WAL. A log that is in the other store is
	// moved when it is opened.
	LogStore StoreKind
	// Address is the advertised host:port.
	Address string
	// Zone is the redundancy zone that the server tells others; empty: none.
	Zone    string
	Machine Machine
	// Stream carries raft's RPCs. The replica closes it.
	Stream raft.StreamLayer
	// PeerClient returns a client for the server at an address. Nil if there is
	// only one server.
	PeerClient func(address string) peerv1connect.PeerServiceClient
	// Bootstrap lists the first voters. It is used only if Dir is empty, and only
	// after every other server of the list has said that it knows of no cluster; if
	// one does, this server joins that. All must be given the same list. Nil: wait
	// to be added.
	Bootstrap []Server
	// ClusterID returns the cluster whose state Machine holds, empty if it holds none.
	// A server that holds the state of another cluster is not let in. Nil: not checked.
	ClusterID func() string
	Logger    hclog.Logger
	// Exit is called once, on a condition under which the process must not go
	// on. It should end the process and must not call the replica. If it
	// returns, no proposal succeeds any more.
	Exit func(error)

	// HeartbeatTimeout is how long a follower waits for its leader: 1 s.
	// Heartbeats wait behind fsync, so it must be far above fsync's p99.9.
	HeartbeatTimeout time.Duration
	// ElectionTimeout is how long a candidate waits: HeartbeatTimeout.
	ElectionTimeout time.Duration
	// LeaderLease is how long a leader goes on without a majority:
	// HeartbeatTimeout / 2.
	LeaderLease time.Duration
	// TransportTimeout bounds one RPC: 5 s.
	TransportTimeout time.Duration

	// SnapshotThreshold is how many entries are between snapshots: 8192.
	SnapshotThreshold uint64
	// SnapshotInterval is how often that is looked at: 30 s.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay after a snapshot. It must be more
	// than the retained snapshots span: 3 x SnapshotThreshold.
	TrailingLogs uint64
	// MaxAppendEntries is how many entries one RPC carries: 64. Entries are
	// batches already.
	MaxAppendEntries int

	// DiskHangLimit is how long one write may take: 10 s.
	DiskHangLimit time.Duration
	// LeaderWait bounds how long a proposal or a read waits for a leader: 3 s.
	LeaderWait time.Duration
	// AdmitWait bounds how long a change of members or a transfer waits for the servers
	// that it needs: 8 s.
	AdmitWait time.Duration
	// ForwardTimeout bounds one call to the leader: 5 s.
	ForwardTimeout time.Duration
	// QueueBytes bounds what waits to be proposed: 64 MiB.
	QueueBytes int
	// EntryBytes and EntryWeight bound one entry: 1 MiB and fsm.EntryWeight.
	EntryBytes, EntryWeight int
	// Pipeline is how many entries are in flight: 1. With more, entries are
	// smaller, and on a busy machine that costs more than the overlap gains.
	Pipeline int
	// FailoverStagger is between two followers that stand for election because
	// their leader's process is gone: 150 ms.
	FailoverStagger time.Duration

	// Timings are told what things take. Each of them must not block.
	Timings Timings

	// Now is the clock; only differences count. clock.Now.
	Now func() time.Time
	// Probe dials a server's port and hangs up. Its error must wrap
	// ECONNREFUSED if and only if the port refused. A TCP dial.
	Probe func(ctx context.Context, address string) error
	// WrapLogs is put between the entries of the log and everything above them, for
	// disk faults in tests.
	WrapLogs func(LogStore) LogStore

	// unsafeFastHeartbeats brings hashicorp/raft issue 695 back, so that its
	// regression test can show that it would notice.
	unsafeFastHeartbeats bool
	// commitTimeout is raft's, changed to show that followers learn of a commit
	// without it.
	commitTimeout time.Duration
	// stamped is called with each entry just before raft is given it.
	stamped func(*logv1.Entry)
	// intercept sees each RPC before raft; a non-nil result answers it.
	intercept func(cmd any) any
	// segmentBytes is how long a file of the log gets: 16 MiB.
	segmentBytes int
	// converting is called after each step of a conversion of the log, which an error
	// ends.
	converting func(done string) error
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	c.Timings.setDefaults()
	orDefault(&c.LogStore, WAL)
	orDefault(&c.segmentBytes, segmentBytes)
	orDefault(&c.HeartbeatTimeout, time.Second)
	orDefault(&c.ElectionTimeout, c.HeartbeatTimeout)
	orDefault(&c.LeaderLease, c.HeartbeatTimeout/2)
	orDefault(&c.TransportTimeout, 5*time.Second)
	orDefault(&c.SnapshotThreshold, 8192)
	orDefault(&c.SnapshotInterval, 30*time.Second)
	orDefault(&c.TrailingLogs, 3*c.SnapshotThreshold)
	orDefault(&c.MaxAppendEntries, 64)
	orDefault(&c.DiskHangLimit, 10*time.Second)
	orDefault(&c.LeaderWait, 3*time.Second)
	orDefault(&c.AdmitWait, 8*time.Second)
	orDefault(&c.ForwardTimeout, 5*time.Second)
	orDefault(&c.QueueBytes, 64<<20)
	orDefault(&c.EntryBytes, 1<<20)
	orDefault(&c.EntryWeight, fsm.EntryWeight)
	orDefault(&c.Pipeline, 1)
	orDefault(&c.FailoverStagger, 150*time.Millisecond)
	if c.Now == nil {
		c.Now = clock.Now
	}
	if c.Probe == nil {
		c.Probe = probeTCP
	}
}

// diskHangLimitMin is more than any write takes on a disk that works.
const diskHangLimitMin = 50 * time.Millisecond

func (c *Config) validate() error {
	switch {
	case c.ServerID == "" || c.Dir == "" || c.Address == "":
		return errors.New("replica: ServerID, Dir and Address are required")
	case c.Machine == nil || c.Stream == nil || c.Exit == nil:
		return errors.New("replica: Machine, Stream and Exit are required")
	case c.LogStore != WAL && c.LogStore != BoltDB:
		return fmt.Errorf("replica: unknown LogStore %q; there are %s and %s", c.LogStore, WAL, BoltDB)
	case c.TrailingLogs <= snapshotsRetained*c.SnapshotThreshold:
		return fmt.Errorf("replica: TrailingLogs (%d) must be above %d x SnapshotThreshold (%d), or a damaged snapshot cannot be replaced by replay",
			c.TrailingLogs, snapshotsRetained, c.SnapshotThreshold)
	case c.DiskHangLimit < diskHangLimitMin:
		return fmt.Errorf("replica: DiskHangLimit (%v) must be at least %v, or a slow write ends the process", c.DiskHangLimit, diskHangLimitMin)
	}
	return nil
}

func (c *Config) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(c.ServerID)
	rc.Logger = c.Logger.Named("raft")
	rc.HeartbeatTimeout = c.HeartbeatTimeout
	rc.ElectionTimeout = c.ElectionTimeout
	rc.LeaderLeaseTimeout = c.LeaderLease
	rc.MaxAppendEntries = c.MaxAppendEntries
	if c.commitTimeout > 0 {
		rc.CommitTimeout = c.commitTimeout
	}
	rc.SnapshotInterval = c.SnapshotInterval
	rc.SnapshotThreshold = c.SnapshotThreshold
	rc.TrailingLogs = c.TrailingLogs
	rc.ShutdownOnRemove = false
	rc.NoLegacyTelemetry = true
	return rc
}

func probeTCP(ctx context.Context, address string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
