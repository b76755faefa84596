package check

import (
	"maps"
	"slices"

	"rota/fsm/state"
	"rota/jepsen/history"
)

// listedMax is how many of the first live actions of a revision are kept: a page is shorter.
const listedMax = 1000

// defaultNamespace is that of all workloads.
const defaultNamespace = "default"

// lists: a page of live actions has the first ones that the log has at the revision of the list,
// and all of them if no other page follows.
func lists(e *evidence, f *findings) {
	t, whole := e.whole(f)
	if !whole {
		return
	}
	for _, op := range e.Ops {
		if op.Verb != history.List || op.Outcome != history.OK || op.Revision > t.last.Meta().Revision {
			continue
		}
		f.checked++
		live, known := t.lists[op.Revision]
		switch n := len(op.IDs); {
		case !known:
			f.add(describeOps(op), "a list is of revision %d, in the middle of an entry", op.Revision)
		case n > len(live) || !slices.Equal(op.IDs, live[:n]):
			f.add(describeOps(op), "a list at revision %d has other live actions than the log: there they are %v", op.Revision, live[:min(n+1, len(live))])
		case !op.More && n < len(live):
			f.add(describeOps(op), "a list at revision %d ends before action %d, which is live by the log", op.Revision, live[n])
		}
	}
}

// lister notes which actions are live at the revisions that were listed.
type lister struct {
	wanted map[uint64]bool
	live   map[uint64]bool
}

func newLister(ops []history.Op) *lister {
	l := &lister{wanted: make(map[uint64]bool), live: make(map[uint64]bool)}
	for _, op := range ops {
		if op.Verb == history.List && op.Outcome == history.OK {
			l.wanted[op.Revision] = true
		}
	}
	return l
}

// learn notes what happened to an action.
func (l *lister) learn(s *state.State, e state.Event) {
	if n := s.Namespace(e.Namespace); n == nil || n.Name != defaultNamespace {
		return
	}
	if state.ActionState(e.State).Final() {
		delete(l.live, e.Subject)
	} else {
		l.live[e.Subject] = true
	}
}

// list returns the first live actions, if a revision was listed.
func (l *lister) list(revision uint64) (ids []uint64, wanted bool) {
	if !l.wanted[revision] {
		return nil, false
	}
	ids = slices.Sorted(maps.Keys(l.live))
	return ids[:min(len(ids), listedMax)], true
}
