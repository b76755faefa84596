package agent

import (
	"errors"
	"time"

	"rota/agent/runtime"
)

const (
	// killAgain is when a kill is repeated if the attempt has not ended.
	killAgain = time.Second
	// startAgain is how long a start waits that the runtime had no room for.
	startAgain = 100 * time.Millisecond
)

// toAccept returns wanted attempts that are to be entered into the journal.
// What is only going to be refused needs no lease.
func (t *table) toAccept(ready bool) []runtime.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []runtime.Key
	for key, a := range t.attempts {
		if a.phase == phaseWanted && (a.refusal != nil || ready && t.open) {
			keys = append(keys, key)
		}
	}
	return keys
}

// accepted moves on what is in the journal now.
func (t *table) accepted(keys []runtime.Key) {
	t.change(func() {
		for _, key := range keys {
			a := t.attempts[key]
			switch {
			case a == nil:
				// No longer desired while the journal was written, and never started.
				t.done = append(t.done, key)
			case a.phase == phaseWanted:
				a.phase = phaseAccepted
				if a.refusal != nil {
					t.end(a, *a.refusal)
				}
			}
		}
	})
}

// toStart hands over what is to be started now.
func (t *table) toStart(ready bool) []runtime.Spec {
	if !ready {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var specs []runtime.Spec
	now := t.now()
	for _, a := range t.attempts {
		if t.open && a.phase == phaseAccepted && a.key.Incarnation == t.incarnation && now >= a.notBefore {
			a.phase = phaseStarting
			specs = append(specs, a.spec)
		}
	}
	return specs
}

// started records what Start answered. It returns true if the runtime says
// that its deadline has passed, and an error if the runtime cannot go on.
func (t *table) started(key runtime.Key, err error) (disarmed bool, fatal error) {
	t.change(func() {
		a := t.attempts[key]
		if a == nil || a.phase != phaseStarting {
			return // its end was faster than the answer
		}
		switch {
		case err == nil:
			a.phase, a.spec.Argv, a.spec.Env = phaseRunning, nil, nil
		case errors.Is(err, runtime.ErrDeadlinePassed), errors.Is(err, runtime.ErrStopping):
			disarmed = true
			t.putBack(a, 0)
		case errors.Is(err, runtime.ErrTooMany):
			t.putBack(a, startAgain)
		case errors.Is(err, runtime.ErrInvalidSpec):
			t.end(a, runtime.Exit{Key: key, Reason: runtime.ReasonStartFailed, Message: err.Error()})
		case errors.Is(err, runtime.ErrJournal):
			t.putBack(a, 0)
			fatal = err
		default:
			// Nobody knows whether it was started. A list of the runtime tells.
			t.log.Warn("start of an attempt was not answered", "attempt", key, "error", err)
			a.phase, t.auditDue = phaseRunning, true
		}
	})
	return disarmed, fatal
}

// putBack keeps an attempt that the runtime certainly has not started.
func (t *table) putBack(a *attempt, wait time.Duration) {
	a.phase, a.notBefore = phaseAccepted, t.now()+int64(wait)
	if a.kill != 0 {
		t.stop(a, a.kill, "")
	}
}

// kill is one call that is due.
type kill struct {
	key    runtime.Key
	reason runtime.Reason
}

// toKill returns what must end and has not been told so lately.
func (t *table) toKill() []kill {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kills []kill
	now := t.now()
	for key, a := range t.attempts {
		if a.phase != phaseRunning || a.kill == 0 {
			continue
		}
		if a.killedAt != 0 && now-a.killedAt < int64(killAgain) {
			continue
		}
		if a.killedAt != 0 {
			t.log.Warn("an attempt does not die", "attempt", key)
		}
		a.killedAt = now
		kills = append(kills, kill{key, a.kill})
	}
	return kills
}

// toReport returns ends of the current incarnation whose reports are due: up to
// countMax, of at most bytesMax together, and one in any case.
func (t *table) toReport(countMax, bytesMax int) (incarnation uint64, exits []runtime.Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.attempts {
		if a.phase != phaseEnded || a.reporting || key.Incarnation != t.incarnation {
			continue
		}
		if bytesMax -= reportBytes(a.exit); len(exits) > 0 && bytesMax < 0 {
			break
		}
		a.reporting = true
		if exits = append(exits, a.exit); len(exits) == countMax {
			break
		}
	}
	return t.incarnation, exits
}

// acked records that the entry at index holds the reports; index 0 says that
// nobody has confirmed them, so that they are due again.
func (t *table) acked(exits []runtime.Exit, index uint64) {
	t.change(func() {
		for _, exit := range exits {
			a := t.attempts[exit.Key]
			if a == nil || !a.reporting {
				continue
			}
			a.reporting = false
			if index == 0 {
				continue
			}
			a.phase, a.ackIndex = phaseReported, index
			t.reported = append(t.reported, exit.Key)
			t.forget = append(t.forget, exit.Key)
		}
	})
}

// chores are what can be written down and forgotten.
type chores struct{ reported, forget, done []runtime.Key }

func (c chores) none() bool { return len(c.reported)+len(c.forget)+len(c.done) == 0 }

func (t *table) takeChores() chores {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := chores{t.reported, t.forget, t.done}
	t.reported, t.forget, t.done = nil, nil, nil
	return c
}

// takeAudit reports whether a list of the runtime is asked for, and what is
// thought to run before it is made.
func (t *table) takeAudit(force bool) (running []runtime.Key, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if due, t.auditDue = t.auditDue || force, false; !due {
		return nil, false
	}
	for key, a := range t.attempts {
		if a.phase == phaseRunning {
			running = append(running, key)
		}
	}
	return running, true
}

// audited ends what was thought to run before a list of the runtime that knows
// nothing of it.
func (t *table) audited(thought, running []runtime.Key, ended []runtime.Exit) {
	known := map[runtime.Key]bool{}
	for _, key := range running {
		known[key] = true
	}
	t.change(func() {
		for _, exit := range ended {
			known[exit.Key] = true
			t.exited(exit)
		}
		for _, key := range thought {
			if a := t.attempts[key]; a != nil && a.phase == phaseRunning && !known[key] {
				t.end(a, t.lostExit(a))
			}
		}
	})
}
