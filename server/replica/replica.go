package replica

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/server/entry"
)

// Replica is one server's share of the replicated log.
type Replica struct {
	cfg    Config
	logger hclog.Logger
	guard  *guard
	store  *storage
	trans  *transport
	raft   *raft.Raft

	quarantine quarantine
	strangers  strangers
	zones      zones

	lead     atomic.Pointer[leadership] // nil unless this server leads and is ready
	leadMu   sync.Mutex                 // orders changes of lead and what leaderCh is told
	leaderCh chan uint64
	notify   chan bool
	observed chan raft.Observation
	observer *raft.Observer
	changed  broadcaster
	suspect  chan struct{} // a peer's connection ended
	// lastLeader is the newest leader that raft named.
	lastLeader atomic.Pointer[raft.LeaderObservation]

	local   *queue
	remote  *queue
	readers *readQueue
	wedge   wedge

	closing atomic.Bool
	closed  chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

// Open opens or creates the replica in cfg.Dir and starts it.
func Open(cfg Config) (*Replica, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Replica{
		cfg: cfg, logger: cfg.Logger.Named("replica"),
		leaderCh: make(chan uint64, 1), notify: make(chan bool, 64),
		observed: make(chan raft.Observation, 64),
		suspect:  make(chan struct{}, 1),
		closed:   make(chan struct{}),
	}
	limits := entry.Limits{QueueBytes: cfg.QueueBytes, EntryBytes: cfg.EntryBytes, EntryWeight: cfg.EntryWeight}
	r.local = newQueue(limits)
	r.remote = newQueue(limits)
	r.readers = newReadQueue()
	r.guard = newGuard(cfg.DiskHangLimit, cfg.Exit, r.logger)
	store, err := openStorage(&cfg, r.guard)
	if err != nil {
		r.guard.close()
		return nil, err
	}
	r.store = store
	r.store.logs.appended = cfg.Timings.Append
	if err := r.startRaft(); err != nil {
		if r.trans != nil {
			_ = r.trans.Close()
		}
		r.guard.close()
		if fatal := r.guard.err(); fatal != nil && !errors.Is(err, fatal) {
			err = fmt.Errorf("%w (%v)", fatal, err) // raft keeps only its text
		}
		return nil, errors.Join(err, store.close())
	}
	r.start()
	return r, nil
}

// startRaft starts raft, in quarantine if the store is suspect. Raft panics over a log
// that it cannot read; here that is an error.
func (r *Replica) startRaft() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	r.quarantine.reason, r.quarantine.mark = r.store.suspect, r.store.marked
	r.quarantine.active.Store(r.store.suspect != "")
	r.quarantine.unknown = r.store.blank
	stream := &watchedStream{StreamLayer: r.cfg.Stream, closed: r.peerGone, ours: r.ourCluster}
	r.trans = newTransport(&r.cfg, stream, r.gate)
	conf := r.cfg.raftConfig()
	conf.NotifyCh = r.notify
	if r.quarantine.active.Load() {
		r.logger.Warn("quarantined: this server does not vote until it has caught up with a leader", "reason", r.quarantine.reason)
		conf.HeartbeatTimeout, conf.ElectionTimeout = never, never
	}
	r.raft, err = raft.NewRaft(conf, timedFSM{r.cfg.Machine, r.cfg.Timings.Apply}, r.store.logs, r.store.stable, r.store.snaps, r.trans)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	r.trans.run()
	return nil
}

// timedFSM hides what else the machine implements, so that raft sees commands and nothing
// but commands. It tells how long they took.
type timedFSM struct {
	raft.FSM
	applied func(commands int, took time.Duration)
}

// Apply implements raft.FSM.
func (f timedFSM) Apply(l *raft.Log) any {
	began := time.Now()
	answer := f.FSM.Apply(l)
	if results, ok := answer.([]*logv1.Result); ok {
		f.applied(len(results), time.Since(began))
	}
	return answer
}

func (r *Replica) start() {
	r.observer = raft.NewObserver(r.observed, false, func(o *raft.Observation) bool {
		switch data := o.Data.(type) {
		case raft.LeaderObservation:
			if data.LeaderAddr != "" {
				r.lastLeader.Store(&data)
				r.cfg.Timings.LeaderChanged()
			}
			return true
		case raft.RaftState:
			return true
		}
		return false
	})
	r.raft.RegisterObserver(r.observer)
	r.goFunc(r.followLeadership)
	r.goFunc(r.watchLeader)
	r.goFunc(r.proposeLoop)
	r.goFunc(r.forwardLoop)
	r.goFunc(r.readLoop)
	if r.quarantine.active.Load() {
		r.goFunc(r.watchQuarantine)
	}
}

func (r *Replica) goFunc(fn func()) {
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		fn()
	}()
}

// header is what raft puts in front of each of its messages.
func (r *Replica) header() raft.RPCHeader {
	return raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax,
		ID:              []byte(r.cfg.ServerID),
		Addr:            []byte(r.cfg.Address),
	}
}

// broadcaster wakes everybody who waits for a change.
type broadcaster struct {
	mu sync.Mutex
	ch chan struct{}
}

func (b *broadcaster) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcaster) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
