package plan

import (
	"fmt"
	"slices"
)

// Assignment is one attempt that the node should know.
type Assignment struct {
	Key Key
	// Stop ends the attempt.
	Stop bool
	// CPUs that it has to itself. They may change while it runs. None: it shares those of
	// the node.
	CPUs CPUs
	// Shares: it does not have them to itself, but shares them with others of which that is said.
	Shares bool
	// Freeze is the pause that it is to be frozen for; 0: it runs.
	Freeze uint32
	// Engine that has to be ready before it starts; the zero value: none.
	Engine Engine
	// GPUs that it has to itself, by number. It starts when no engine leaves them any more.
	GPUs []int
	// Work is what to start, for whoever does it. Refused says in words why it cannot be
	// started. Both matter only for an attempt that the plan does not know.
	Work    any
	Refused string
}

// Desired is what a node should be doing, as of an index.
type Desired struct {
	// Incarnation that it is for. Fenced says that the cluster has given it up.
	Incarnation uint64
	Fenced      bool
	Index       uint64
	// Since is the index of the state that these are the changes of; 0: it is the whole.
	Since       uint64
	Assignments []Assignment
	// Gone are attempts that should not exist any more, if these are changes.
	Gone []Key
}

// Desire tells of a desired state. A whole one may be repeated, late or out of order.
// Changes are only good for the state that they are of: gap says that another state was
// seen last, and the whole is needed.
func (p *Plan) Desire(d Desired) (gap bool) {
	t := &p.table
	switch {
	case p.session.stage != open, d.Incarnation != t.incarnation, d.Index < t.index:
		return false
	case d.Since != 0 && d.Since != t.index:
		return true
	}
	t.index = d.Index
	if d.Fenced {
		p.endSession("the cluster has given this incarnation up")
		return false
	}
	t.round++
	for _, as := range d.Assignments {
		p.want(as)
	}
	if d.Since != 0 {
		for _, k := range d.Gone {
			if a := t.byKey[k]; a != nil {
				p.unwant(a)
			}
		}
		return false
	}
	t.each(func(a *attempt) {
		if a.named != t.round && a.key.Incarnation == d.Incarnation {
			p.unwant(a)
		}
	})
	return false
}

// want deals with one attempt that should exist.
func (p *Plan) want(as Assignment) {
	t := &p.table
	if as.Key.Action == 0 || as.Key.Attempt == 0 || as.Key.Incarnation != t.incarnation {
		p.note(as.Key, "ignoring an assignment without a token of this incarnation; the server is at fault")
		return
	}
	a := t.byKey[as.Key]
	switch {
	case a == nil:
		a = p.newAttempt(as)
		t.add(a)
		p.link.forget = slices.DeleteFunc(p.link.forget, func(k Key) bool { return k == as.Key }) // it needs its port again
	case a.named == t.round:
		p.note(as.Key, "ignoring an assignment that is there twice; the server is at fault")
	case as.Stop && a.phase == wanted:
		a.refusal = canceledExit(as.Key)
	case as.Stop:
		p.stop(a, ReasonCanceled, canceledExit(as.Key).Message)
	case a.phase == reported && t.index >= a.ackIndex:
		p.note(as.Key, fmt.Sprintf("still desired at index %d though its report was committed at %d; reporting it again", t.index, a.ackIndex))
		a.phase, a.ackIndex = ended, 0
		if a.exit.Reason == 0 { // reported before a restart
			a.exit = lostExit(a)
		}
	}
	t.askew = t.askew || !slices.Equal(a.wants, as.CPUs) || a.shares != as.Shares || a.ice.pause != as.Freeze
	a.ice.pause = as.Freeze
	t.share(a, as.Shares)
	a.named, a.wants, a.engine, a.gpus = t.round, as.CPUs, as.Engine, as.GPUs
	if !p.link.resizes && a.phase.live() && len(a.holds) == 0 { // the supervisor does not tell
		t.hold(a, as.CPUs)
	}
}

// newAttempt is entered into the journal before anything else happens to it,
// even if it is only going to be refused: a report of the refusal may be
// under way when the agent dies, and then it must not be started after all.
func (p *Plan) newAttempt(as Assignment) *attempt {
	a := &attempt{key: as.Key, work: as.Work}
	if as.Stop {
		a.refusal = canceledExit(as.Key)
		return a
	}
	if as.Refused != "" {
		a.refusal = &Exit{Key: as.Key, Reason: ReasonStartFailed, Message: as.Refused}
		return a
	}
	for _, other := range p.table.byAction[as.Key.Action] {
		if other.phase < ended && other.refusal == nil && other.key.Incarnation == as.Key.Incarnation {
			a.refusal = &Exit{Key: as.Key, Reason: ReasonStartFailed,
				Message: fmt.Sprintf("another attempt of the action, %s, has not ended on this node", other.key)}
		}
	}
	return a
}

func canceledExit(k Key) *Exit {
	return &Exit{Key: k, Reason: ReasonCanceled, Message: "canceled before the node started it"}
}

// unwant deals with an attempt that should not exist. Attempts never come back
// once they are gone from a desired state, so what has ended can be forgotten,
// reported or not: the cluster knows, or has no use for it.
func (p *Plan) unwant(a *attempt) {
	switch a.phase {
	case ended, reported:
		p.drop(a)
	case accepted:
		p.end(a, Exit{Key: a.key, Reason: ReasonCanceled})
		p.drop(a)
	default:
		p.stop(a, ReasonCanceled, "")
	}
}
