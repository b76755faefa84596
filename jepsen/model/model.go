package model

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Model is what the documents say a cluster must be after the entries that it
// was stepped through. It is not safe for concurrent use.
type Model struct {
	// Planted returns the decisions of an entry that were made to panic on purpose; nil: there
	// are none. Any other panic is a disagreement.
	Planted func(index uint64) []Planted

	cluster  string
	settings state.Settings
	level    uint32 // of features
	now      int64  // log time in nanoseconds
	applied  uint64
	revision uint64
	workLeft bool // work was left over for the next entry
	// Newest numbers given out.
	lastAction      state.ActionID
	lastTrajectory  state.TrajectoryID
	lastIncarnation uint64
	lastNode        state.NodeID
	lastQuota       state.QuotaID
	lastClass       state.ClassID
	lastNamespace   state.NamespaceID
	lastPool        state.PoolID
	lastGeneration  uint64 // of engines

	namespaces   map[string]state.NamespaceID
	uses         uses
	pools        map[string]*pool
	gpuClasses   map[string]state.GPUClassID
	gpuAges      map[state.GPUClassID]uint64 // in microseconds of set-up
	nodes        map[string]*node
	trajectories map[state.TrajectoryID]*trajectory
	actions      map[state.ActionID]*action
	requests     map[string]*request
	requestsOf   map[state.NamespaceID]int
	quotas       map[string]*quota
	classes      map[className]*class
	engines      map[string]*engine // by model
	migrations   migrations
	snapshots    fileSnapshots
	rollouts     rollouts
	workers      workers
	access       access
	staged       staged
	rewards      rewards
	gangs        gangs
	shares       shares

	poolByID  map[state.PoolID]*pool
	nodeByID  map[state.NodeID]*node
	quotaList []*quota  // in the order of creation
	due       deadlines // what happens at a log time
	ended     deadlines // kept actions by when they ended
	endedSize uint64    // bytes of the kept actions
	queueSize uint64    // bytes of the queued actions
	counts    state.Counts

	ledger
	step
}

// step is what is known while one entry is compared.
type step struct {
	s *state.State // after the entry
	// Rows that the entry changed, each once.
	touchedActions      []*action
	touchedTrajectories []*trajectory
	touchedNodes        []*node
	touchedPools        []*pool
	touchedClasses      []*class
	touchedRequests     []string
	touchedEngines      []string // models
	// onlyArrivals: no node was changed by the commands, and no work was left over, so that every
	// pass is over the queue of a pool, and chooses among all nodes.
	onlyArrivals bool
	planted      []Planted
	budget       int  // timers that may still fire
	over         bool // all that the entry did was seen
}

// New returns the model of a cluster that has applied nothing.
func New() *Model {
	return &Model{
		namespaces:   make(map[string]state.NamespaceID),
		pools:        make(map[string]*pool),
		gpuClasses:   make(map[string]state.GPUClassID),
		gpuAges:      make(map[state.GPUClassID]uint64),
		nodes:        make(map[string]*node),
		trajectories: make(map[state.TrajectoryID]*trajectory),
		actions:      make(map[state.ActionID]*action),
		requests:     make(map[string]*request),
		requestsOf:   make(map[state.NamespaceID]int),
		quotas:       make(map[string]*quota),
		classes:      make(map[className]*class),
		engines:      make(map[string]*engine),
		migrations:   migrations{all: make(map[state.MigrationID]*state.Migration)},
		snapshots:    fileSnapshots{all: make(map[state.FileSnapshotID]*state.FileSnapshot)},
		rollouts:     newRollouts(),
		workers:      newWorkers(),
		access:       newAccess(),
		rewards:      newRewards(),
		shares:       newShares(),
		poolByID:     make(map[state.PoolID]*pool),
		nodeByID:     make(map[state.NodeID]*node),
		counts:       state.Counts{},
		ledger:       newLedger(),
	}
}

// Step compares what the real state machine made of one entry with what it must
// be: s is the state after the entry, results are those of its commands. Entries
// come in the order of the log, with the terms that it has them in. After an error
// the model is of no use any more.
func (m *Model) Step(index, term uint64, e *logv1.Entry, results []*logv1.Result, s *state.State) error {
	if e.Term != 0 && e.Term != term {
		if err := m.passOver(index, e, results, s); err != nil {
			return fmt.Errorf("entry %d of term %d, stamped in term %d: %w", index, term, e.Term, err)
		}
		return nil
	}
	if err := m.begin(index, e, results, s); err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	if err := m.fireTimers(); err != nil {
		return fmt.Errorf("entry %d, timers: %w", index, err)
	}
	for i, c := range e.Commands {
		if err := m.command(i, c, results[i]); err != nil {
			return fmt.Errorf("entry %d, command %d: %w", index, i, err)
		}
	}
	if err := m.halt(); err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	m.learnReservations()
	if err := m.scaleRewards(); err != nil {
		return fmt.Errorf("entry %d, scaling: %w", index, err)
	}
	if err := m.schedule(); err != nil {
		return fmt.Errorf("entry %d, scheduling: %w", index, err)
	}
	if err := m.endReviews(); err != nil {
		return fmt.Errorf("entry %d, rollouts: %w", index, err)
	}
	m.placeGenerations()
	m.transmit()
	if err := m.finish(); err != nil {
		return fmt.Errorf("entry %d, afterwards: %w", index, err)
	}
	return nil
}

// passOver is what becomes of an entry that was stamped in another term: nothing,
// and all its commands are refused.
func (m *Model) passOver(index uint64, e *logv1.Entry, results []*logv1.Result, s *state.State) error {
	if err := m.begin(index, &logv1.Entry{Commands: e.Commands}, results, s); err != nil {
		return err
	}
	for i, r := range results {
		if r.Refusal.GetReason() != "OTHER_TERM" || r.Refusal.GetRetryNs() == 0 {
			return fmt.Errorf("the result of command %d is %v, must be a refusal for the term, to be tried again", i, r)
		}
	}
	return m.finish()
}

// begin moves log time, which never goes back.
func (m *Model) begin(index uint64, e *logv1.Entry, results []*logv1.Result, s *state.State) error {
	m.step = step{
		s: s, onlyArrivals: !m.workLeft && !s.HasWork(), budget: stepsPerEntry,
		touchedActions: m.touchedActions[:0], touchedTrajectories: m.touchedTrajectories[:0],
		touchedNodes: m.touchedNodes[:0], touchedPools: m.touchedPools[:0], touchedClasses: m.touchedClasses[:0],
		touchedRequests: m.touchedRequests[:0], touchedEngines: m.touchedEngines[:0],
	}
	if m.Planted != nil {
		m.planted = m.Planted(index)
	}
	m.workLeft = s.HasWork()
	m.beginLedger()
	m.beginWorkers()
	m.beginRollouts()
	m.migrations.touched, m.snapshots.touched = m.migrations.touched[:0], m.snapshots.touched[:0]
	if len(results) != len(e.Commands) {
		return fmt.Errorf("%d commands have %d results", len(e.Commands), len(results))
	}
	for i, r := range results {
		if r.Index != index {
			return fmt.Errorf("the result of command %d says index %d", i, r.Index)
		}
	}
	if index <= m.applied {
		return fmt.Errorf("it follows entry %d", m.applied)
	}
	m.applied = index
	m.now = max(m.now, e.TimeNs)
	if got := s.Meta(); got.Now != m.now || got.Applied != index {
		return fmt.Errorf("log time %d at index %d, must be %d", got.Now, got.Applied, m.now)
	}
	return nil
}

// expect takes the next event, which must be this one.
func (m *Model) expect(want state.Event) error {
	m.revision++
	want.Revision, want.Time = m.revision, m.now
	got, ok := m.s.Event(m.revision)
	switch {
	case !ok:
		return fmt.Errorf("event %d is missing: %s", m.revision, describe(want))
	case got != want:
		return fmt.Errorf("event %d is %s, must be %s", m.revision, describe(got), describe(want))
	}
	m.learnEnd(want)
	return nil
}

// peek returns the next event without taking it.
func (m *Model) peek() (state.Event, bool) { return m.s.Event(m.revision + 1) }

func describe(e state.Event) string {
	noun := [...]string{"?", "action", "trajectory", "node", "job", "turn"}[e.Kind%6]
	return fmt.Sprintf("%s %d state %d (trajectory %d, namespace %d, node %d, attempt %d, reason %d, exit code %d, revision %d at %d)",
		noun, e.Subject, e.State, e.Trajectory, e.Namespace, e.Node, e.Attempt, e.Reason, e.ExitCode, e.Revision, e.Time)
}
