package agent

import (
	"errors"
	"fmt"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/runtime"
)

// errGap: what came are changes of another state than the newest that was seen.
var errGap = errors.New("a message of the stream is missing: asking for the whole desired state")

// desire brings the table towards a desired state of the given incarnation. The whole
// of one may be repeated, late or out of order; changes are only good for the state
// that they are of, else desire returns errGap. It returns errFenced if the cluster
// has given up the incarnation.
func (t *table) desire(incarnation uint64, m *rotav1.WatchNodeResponse, specs specifier) (err error) {
	t.change(func() {
		if !t.open || incarnation != t.incarnation || m.GetIndex() < t.minIndex {
			return
		}
		if m.GetSince() != 0 && m.GetSince() != t.minIndex {
			err = errGap
			return
		}
		t.minIndex = m.GetIndex()
		if m.GetFenced() {
			err = errFenced
			return
		}
		named := t.wantAll(incarnation, m.GetAssignments(), specs)
		if m.GetSince() != 0 {
			t.unwantGone(incarnation, m.GetGone())
			return
		}
		for key, a := range t.attempts {
			if !named[key] && key.Incarnation == incarnation {
				t.unwant(a)
			}
		}
	})
	return err
}

// wantAll deals with the attempts that should exist, and returns which they are.
func (t *table) wantAll(incarnation uint64, assignments []*rotav1.Assignment, specs specifier) map[runtime.Key]bool {
	named := make(map[runtime.Key]bool, len(assignments))
	for _, as := range assignments {
		key := runtime.Key{Action: as.GetActionId(), Attempt: as.GetAttempt(), Incarnation: incarnation}
		switch {
		case key.Action == 0 || key.Attempt == 0:
			t.log.Error("ignoring an assignment without a token; the server is at fault", "attempt", key)
		case named[key]:
			t.log.Error("ignoring an assignment that is there twice; the server is at fault", "attempt", key)
		default:
			named[key] = true
			t.want(key, as, specs)
		}
	}
	return named
}

// unwantGone deals with the attempts that should not exist any more.
func (t *table) unwantGone(incarnation uint64, gone []*rotav1.GoneAttempt) {
	for _, g := range gone {
		if a := t.attempts[runtime.Key{Action: g.GetActionId(), Attempt: g.GetAttempt(), Incarnation: incarnation}]; a != nil {
			t.unwant(a)
		}
	}
}

// seen is the index of the newest desired state, or of the registration.
func (t *table) seen() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.minIndex
}

// want deals with one attempt that should exist.
func (t *table) want(key runtime.Key, as *rotav1.Assignment, specs specifier) {
	a := t.attempts[key]
	switch {
	case a == nil:
		t.add(t.newAttempt(key, as, specs))
	case as.GetStop() && a.phase == phaseWanted:
		a.refusal = canceledExit(key)
	case as.GetStop():
		t.stop(a, runtime.ReasonCanceled, canceledExit(key).Message)
	case a.phase == phaseReported && t.minIndex >= a.ackIndex:
		t.log.Error("an attempt is still desired though its report was committed; reporting it again",
			"attempt", key, "report_index", a.ackIndex, "desired_index", t.minIndex)
		a.phase, a.ackIndex = phaseEnded, 0
		if a.exit.Reason == 0 { // reported before a restart
			a.exit = t.lostExit(a)
		}
	}
}

// newAttempt is entered into the journal before anything else happens to it,
// even if it is only going to be refused: a report of the refusal may be
// under way when the agent dies, and then it must not be started after all.
func (t *table) newAttempt(key runtime.Key, as *rotav1.Assignment, specs specifier) *attempt {
	a := &attempt{key: key}
	if as.GetStop() {
		a.refusal = canceledExit(key)
		return a
	}
	var err error
	if a.spec, err = specs.spec(key, as); err != nil {
		t.log.Error("attempt refused", "attempt", key, "error", err)
		a.refusal = &runtime.Exit{Key: key, Reason: runtime.ReasonStartFailed, Message: err.Error()}
		return a
	}
	for _, other := range t.byAction[key.Action] {
		if other.phase < phaseEnded && other.refusal == nil && other.key.Incarnation == key.Incarnation {
			a.refusal = &runtime.Exit{Key: key, Reason: runtime.ReasonStartFailed,
				Message: fmt.Sprintf("another attempt of the action, %s, has not ended on this node", other.key)}
		}
	}
	t.giveCPUs(a)
	return a
}

// giveCPUs notes which CPUs an attempt holds, and complains if another holds one.
func (t *table) giveCPUs(a *attempt) {
	for _, cpu := range a.spec.CPUs {
		other := t.cpus[cpu]
		if other != nil && t.attempts[other.key] == other && other.phase < phaseEnded && other.refusal == nil && other.kill == 0 {
			// Not fatal: the scheduler may know of an end that is on its way here.
			t.log.Warn("two attempts hold the same CPU", "attempt", a.key, "other", other.key, "cpu", cpu)
		}
		t.cpus[cpu] = a
	}
}

func canceledExit(key runtime.Key) *runtime.Exit {
	return &runtime.Exit{Key: key, Reason: runtime.ReasonCanceled, Message: "canceled before the node started it"}
}

// unwant deals with an attempt that should not exist. Attempts never come back
// once they are gone from a desired state, so what has ended can be forgotten,
// reported or not: the cluster knows, or has no use for it.
func (t *table) unwant(a *attempt) {
	switch a.phase {
	case phaseEnded, phaseReported:
		t.drop(a)
	case phaseAccepted:
		t.end(a, runtime.Exit{Key: a.key, Reason: runtime.ReasonCanceled})
		t.drop(a)
	default:
		t.stop(a, runtime.ReasonCanceled, "")
	}
}
