package agent

import (
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime"
)

// phase is how far an attempt has come on this node. It only moves forward,
// with one exception: a report that turns out not to have been heard.
type phase uint8

const (
	phaseWanted   phase = iota // desired, not in the journal yet
	phaseAccepted              // in the journal, not handed to the runtime yet
	phaseStarting              // handed to the runtime, which has not answered
	phaseRunning               // may run; an end will be told
	phaseEnded                 // ended, report due
	phaseReported              // a server has confirmed the report
)

// live phases are those in which processes of the attempt may exist.
func (p phase) live() bool { return p == phaseStarting || p == phaseRunning }

// attempt is one execution as this node knows it. The table's lock guards it.
type attempt struct {
	key   runtime.Key
	phase phase
	spec  runtime.Spec
	// refusal ends the attempt instead of starting it; it is not live ever.
	refusal *runtime.Exit
	// kill is why the attempt must end; 0: it need not.
	kill runtime.Reason
	// killedAt is when the runtime was last told so, by the table's clock.
	killedAt int64
	exit     runtime.Exit
	// reporting says that the report is in flight.
	reporting bool
	// ackIndex is the index of the entry that holds the report.
	ackIndex uint64
	// notBefore holds a start back that the runtime had no room for.
	notBefore int64
	// rebooted says that the machine was started anew since it was accepted.
	rebooted bool
}

// table holds every attempt of this node and decides what is to be done next.
// It does nothing itself: workers take what is due, do it and tell the outcome.
type table struct {
	log hclog.Logger
	now func() int64 // CLOCK_BOOTTIME, ns

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	attempts map[runtime.Key]*attempt
	// byAction has the same attempts by action, and cpus who was given a CPU last, which
	// may be gone: so that a new attempt costs the same however many there are.
	byAction map[uint64][]*attempt
	cpus     map[int]*attempt
	// incarnation that may run attempts; 0 before registration.
	incarnation uint64
	// minIndex is the newest desired state seen, or the registration.
	minIndex uint64
	// open says that this incarnation is registered and was not given up.
	open bool
	// Chores: confirmed reports that the journal does not know of yet, ends that
	// the runtime may drop, and attempts that the journal may.
	reported, forget, done []runtime.Key
	// auditDue asks for a list of what the runtime knows.
	auditDue bool
}

func newTable(log hclog.Logger, now func() int64) *table {
	return &table{log: log, now: now, changed: make(chan struct{}), attempts: map[runtime.Key]*attempt{},
		byAction: map[uint64][]*attempt{}, cpus: map[int]*attempt{}}
}

// change runs f under the lock and wakes every worker.
func (t *table) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	close(t.changed)
	t.changed = make(chan struct{})
}

// wait returns a channel that is closed at the next change.
func (t *table) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// restore puts an attempt of the journal into the table. What became of it is
// said by the runtime, see adopt.
func (t *table) restore(key runtime.Key, reported, rebooted bool) {
	a := &attempt{key: key, phase: phaseRunning, rebooted: rebooted}
	if reported {
		a.phase = phaseReported
	}
	t.change(func() { t.add(a) })
}

// enter opens the table for an incarnation that was registered at index.
// Attempts of older ones must be gone, see waitDead.
func (t *table) enter(incarnation, index uint64) {
	t.change(func() {
		for key, a := range t.attempts {
			if key.Incarnation != incarnation {
				t.drop(a)
			}
		}
		t.incarnation, t.minIndex, t.open = incarnation, max(t.minIndex, index), true
	})
}

// evict kills every attempt, or every one of another incarnation than keep,
// and starts nothing until enter.
func (t *table) evict(keep uint64, reason runtime.Reason) {
	t.change(func() {
		t.open = false
		for key, a := range t.attempts {
			if keep == 0 || key.Incarnation != keep {
				t.stop(a, reason, "")
			}
		}
	})
}

// add enters an attempt into the table.
func (t *table) add(a *attempt) {
	t.attempts[a.key] = a
	t.byAction[a.key.Action] = append(t.byAction[a.key.Action], a)
}

// remove takes an attempt out of the table.
func (t *table) remove(a *attempt) {
	delete(t.attempts, a.key)
	others := slices.DeleteFunc(t.byAction[a.key.Action], func(b *attempt) bool { return b == a })
	if t.byAction[a.key.Action] = others; len(others) == 0 {
		delete(t.byAction, a.key.Action)
	}
}

// stop makes an attempt end. Only a live one takes time to do so.
func (t *table) stop(a *attempt, reason runtime.Reason, message string) {
	switch a.phase {
	case phaseWanted:
		t.remove(a)
	case phaseAccepted:
		t.end(a, runtime.Exit{Key: a.key, Reason: reason, Message: message})
	case phaseStarting, phaseRunning:
		if a.kill == 0 {
			a.kill = reason
		}
	}
}

// end records how an attempt ended. The first end that is told counts.
func (t *table) end(a *attempt, exit runtime.Exit) {
	if a.phase >= phaseEnded {
		return
	}
	a.phase, a.exit, a.spec = phaseEnded, exit, runtime.Spec{}
	if a.key.Incarnation != t.incarnation && t.incarnation != 0 {
		t.drop(a) // the cluster has given it up with its incarnation
	}
}

// drop removes an attempt that the cluster will not name again.
func (t *table) drop(a *attempt) {
	if a.phase.live() {
		t.log.Error("an attempt is dropped while it may run", "attempt", a.key)
	}
	t.remove(a)
	t.forget = append(t.forget, a.key)
	t.done = append(t.done, a.key)
}

// dead reports whether nothing runs that is not of the incarnation keep.
func (t *table) dead(keep uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.attempts {
		if a.phase.live() && (keep == 0 || key.Incarnation != keep) {
			return false
		}
	}
	return true
}

// adopt compares what a newly connected supervisor knows with the table. What
// it knows nothing of was lost with its predecessor, or never reached it: it
// ends as lost and is not started, since nobody can say which of the two.
// Calls of Start that have not returned are left to settle.
func (t *table) adopt(running []runtime.Key, ended []runtime.Exit) {
	known := map[runtime.Key]bool{}
	t.change(func() {
		for _, key := range running {
			known[key] = true
			t.adoptRunning(key)
		}
		for _, exit := range ended {
			known[exit.Key] = true
			t.exited(exit)
		}
		for key, a := range t.attempts {
			if a.phase == phaseRunning && !known[key] {
				t.end(a, t.lostExit(a))
			}
		}
	})
}

func (t *table) adoptRunning(key runtime.Key) {
	a := t.attempts[key]
	switch {
	case a == nil:
		// Not in the journal, so it is not this agent's: it has to go.
		t.log.Warn("killing an attempt that the journal does not know", "attempt", key)
		t.add(&attempt{key: key, phase: phaseRunning, kill: runtime.ReasonNodeLost})
	case a.phase < phaseRunning:
		a.phase = phaseRunning
	case a.phase > phaseRunning:
		t.log.Error("an attempt runs whose end was known", "attempt", key, "end", a.exit.Reason)
		a.phase, a.kill = phaseRunning, runtime.ReasonNodeLost
	}
}

func (t *table) lostExit(a *attempt) runtime.Exit {
	if a.rebooted {
		return runtime.Exit{Key: a.key, Reason: runtime.ReasonNodeLost,
			Message: "the machine was restarted while the attempt ran, or was about to"}
	}
	return runtime.Exit{Key: a.key, Reason: runtime.ReasonSupervisorLost,
		Message: "the attempt was accepted, and then the agent or its supervisor died; nobody can say how far it came"}
}

// Exited records an end that the runtime told.
func (t *table) Exited(exit runtime.Exit) {
	t.change(func() { t.exited(exit) })
}

func (t *table) exited(exit runtime.Exit) {
	a := t.attempts[exit.Key]
	if a == nil {
		t.forget = append(t.forget, exit.Key) // its end was dealt with before
		return
	}
	if a.rebooted && exit.Reason == runtime.ReasonSupervisorLost {
		exit = t.lostExit(a)
	}
	if a.phase == phaseReported {
		t.forget = append(t.forget, exit.Key)
		return
	}
	t.end(a, exit)
}
