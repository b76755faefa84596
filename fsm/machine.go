package fsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// checkpointEvery is the number of entries between two comparisons of hashes.
const checkpointEvery = 256

// Options of a Machine.
type Options struct {
	Logger hclog.Logger
	// OnEffects is called after each entry on Raft's goroutine. It must not block.
	OnEffects func([]Effect)
	// OnFatal is called once when this replica must stop: an entry that cannot be
	// decoded, a broken invariant, a hash that the majority does not have. The
	// process has to exit; nothing is applied any more.
	OnFatal func(error)
	// Voters returns how many servers vote, for the count of hash quotes.
	Voters func() int
	// Deciders are the schedulers of the feature levels that this machine knows, that of
	// state.LevelMin first; nil means those of package sched. Which of them decides is in
	// state.
	Deciders []sched.Scheduler
	// InPlace saves the copy of the state that each entry is applied to. A decision that panics
	// takes the process with it then, as nothing is left to go back to: for simulations.
	InPlace bool
}

// Machine is the state machine as Raft drives it and as servers read it.
type Machine struct {
	opts Options

	mu      sync.RWMutex
	state   *state.State
	recent  hashes
	moved   chan struct{} // closed and replaced whenever an entry was applied
	stopped error

	audit audit // only used on Raft's goroutine
	fail  func(stage)
}

// New returns an empty machine.
func New(o Options) *Machine {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Deciders == nil {
		o.Deciders = sched.Deciders()
	}
	return &Machine{opts: o, state: state.New(), moved: make(chan struct{})}
}

// Apply implements raft.FSM. It returns []*logv1.Result, one for each command.
func (m *Machine) Apply(l *raft.Log) any {
	results, err := m.ApplyData(l.Index, l.Term, l.Data)
	if err != nil {
		return err
	}
	return results
}

// ApplyData is Apply for those who have a log and no Raft: simulation, and the
// replay of a stored log. Once it has failed it fails always.
func (m *Machine) ApplyData(index, term uint64, data []byte) ([]*logv1.Result, error) {
	var e logv1.Entry
	if err := errors.Join(entryFields.check(data), e.UnmarshalVT(data)); err != nil {
		return nil, m.stop(fmt.Errorf("entry %d cannot be decoded: %w", index, err))
	}
	if m.stopped != nil {
		return nil, m.stopped
	}
	next, results, effects, err := m.try(index, term, &e)
	if err != nil {
		return nil, m.stop(fmt.Errorf("entry %d: %w", index, err))
	}
	m.publish(next)
	if index%checkpointEvery == 0 {
		hash := next.Hash()
		m.audit.own(index, hash)
		effects = append(effects, Effect{Kind: EffectCheckpoint, Index: index, Hash: hash})
	}
	if !overtaken(&e, term) {
		if err := m.count(&e); err != nil {
			return nil, m.stop(err)
		}
	}
	if m.opts.OnEffects != nil {
		m.opts.OnEffects(append(effects, Effect{Kind: EffectEvents}))
	}
	return results, nil
}

// try applies an entry; a broken invariant becomes an error.
func (m *Machine) try(index, term uint64, e *logv1.Entry) (next *state.State, results []*logv1.Result, effects []Effect, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *state.Corruption:
			err = r
		case *state.Beyond:
			err = r
		default:
			panic(r)
		}
	}()
	if overtaken(e, term) {
		next = m.Fork()
		return next, passOver(next, index, e), nil, nil
	}
	fork := m.Fork
	if m.opts.InPlace {
		fork = m.once()
	}
	next, results, effects = apply(fork, index, e, m.opts.Deciders, m.fail)
	return next, results, effects, nil
}

// once returns the state itself, for one try of an entry.
func (m *Machine) once() func() *state.State {
	used := false
	return func() *state.State {
		state.Assert(!used, "a decision panicked, and the state was not copied before")
		used = true
		return m.state
	}
}

func (m *Machine) publish(s *state.State) {
	hash := s.Hash()
	m.mu.Lock()
	m.state = s
	m.recent.add(s.Meta().Applied, hash)
	close(m.moved)
	m.moved = make(chan struct{})
	m.mu.Unlock()
}

// count tallies the hash quotes of an entry.
func (m *Machine) count(e *logv1.Entry) error {
	for _, c := range e.Commands {
		q := c.GetQuoteHash()
		if q == nil || m.opts.Voters == nil {
			continue
		}
		if err := m.audit.quote(q.ServerId, q.Index, q.Hash, m.opts.Voters()); err != nil {
			return err
		}
	}
	return nil
}

// stop ends this replica for good.
func (m *Machine) stop(err error) error {
	m.opts.Logger.Error("this replica stops", "error", err)
	m.stopped = err
	if m.opts.OnFatal != nil {
		m.opts.OnFatal(err)
	}
	return err
}

// LevelMax returns the newest feature level that this machine knows.
func (m *Machine) LevelMax() state.Level { return deciders(m.opts.Deciders).newest() }

// Level returns the active feature level, 0 before the bootstrap.
func (m *Machine) Level() (level state.Level) {
	m.View(func(s *state.State) { level = s.Meta().Level })
	return level
}

// View calls fn with the current state under a read lock. fn must be short and
// must neither change nor keep the state.
func (m *Machine) View(fn func(*state.State)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.state)
}

// Fork returns a copy of the current state that stays as it is, for long reads.
func (m *Machine) Fork() *state.State {
	m.mu.Lock() // copying marks both as shared
	defer m.mu.Unlock()
	return m.state.Copy()
}

// Bootstrapped says whether the cluster has its identity. Until then every other
// command is refused.
func (m *Machine) Bootstrapped() (yes bool) {
	m.View(func(s *state.State) { yes = s.Meta().ClusterID != "" })
	return yes
}

// Applied returns the Raft index of the newest applied entry. Raft's own entries
// are not counted.
func (m *Machine) Applied() (index uint64) {
	m.View(func(s *state.State) { index = s.Meta().Applied })
	return index
}

// WaitApplied returns when the entry with the given index has been applied.
func (m *Machine) WaitApplied(ctx context.Context, index uint64) error {
	for {
		m.mu.RLock()
		applied, moved := m.state.Meta().Applied, m.moved
		m.mu.RUnlock()
		if applied >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for entry %d to be applied: %w", index, context.Cause(ctx))
		}
	}
}

// Now returns log time in nanoseconds.
func (m *Machine) Now() (ns int64) {
	m.View(func(s *state.State) { ns = s.Meta().Now })
	return ns
}

// NextDue returns the log time at which a tick has to be proposed; Now if work
// was left over.
func (m *Machine) NextDue() (ns int64, ok bool) {
	m.View(func(s *state.State) { ns, ok = nextDue(s) })
	return ns, ok
}

// Hash returns the state hash and the index it is of.
func (m *Machine) Hash() (index, hash uint64) {
	m.View(func(s *state.State) { index, hash = s.Meta().Applied, s.Hash() })
	return index, hash
}

// HashSince returns the state hash as it was after the first entry from the
// given index on, or the newest if that is no longer remembered, or from is 0.
// So servers can be compared while the log moves on. It waits until there is
// such an entry.
func (m *Machine) HashSince(ctx context.Context, from uint64) (index, hash uint64, err error) {
	if err := m.WaitApplied(ctx, from); err != nil {
		return 0, 0, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if index, hash, ok := m.recent.since(from); ok {
		return index, hash, nil
	}
	return m.state.Meta().Applied, m.state.Hash(), nil
}

// Snapshot implements raft.FSM.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) {
	return &snapshot{m.Fork()}, nil
}

// Restore implements raft.FSM. A snapshot of a feature level that this machine does not
// know stops it, as the entry would that raised the level.
func (m *Machine) Restore(r io.ReadCloser) error {
	s, err := state.Restore(r)
	err = errors.Join(err, r.Close())
	if err == nil {
		err = state.CheckLevel(s.Meta().Level, s.Meta().Release, m.LevelMax())
	}
	var beyond *state.Beyond
	switch {
	case errors.As(err, &beyond):
		return m.stop(fmt.Errorf("restore snapshot: %w", err))
	case err != nil:
		return fmt.Errorf("restore snapshot: %w", err)
	}
	m.audit = audit{}
	m.mu.Lock()
	m.recent = hashes{}
	m.mu.Unlock()
	m.publish(s)
	if m.opts.OnEffects != nil {
		m.opts.OnEffects([]Effect{{Kind: EffectRestored}, {Kind: EffectEvents}})
	}
	return nil
}

type snapshot struct{ state *state.State }

// Persist implements raft.FSMSnapshot.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.state.Save(sink); err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}
