package state

import "cmp"

// resumed is an attempt that waits to go on after a pause. Those of a namespace that wait for a limit
// come last, the oldest of them first.
type resumed struct {
	namespace NamespaceID
	action    ActionID
	lacks     uint32 // cores
	limited   bool
}

// resumedCores are the cores that the resumed attempts of a namespace lack: of those that may have them,
// and of those that wait for a limit. Each pass asks, so they are counted and not added up.
type resumedCores struct{ attempts, resuming, limited int }

func (a resumed) less(b resumed) bool {
	if a.namespace == b.namespace && a.limited != b.limited {
		return b.limited
	}
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.action, b.action)) < 0
}

// indexResumed indexes an attempt in place of the row before; nil: none.
func (s *State) indexResumed(old, r *Attempt) {
	if old != nil && old.Ice >= IceThawing {
		k := s.resumedOf(old)
		db(s).index.resumed.Delete(k)
		s.countResumed(k, -1)
	}
	if r != nil && r.Ice >= IceThawing {
		k := s.resumedOf(r)
		db(s).index.resumed.Set(k)
		s.countResumed(k, 1)
	}
}

// countResumed counts the cores that an attempt lacks.
func (s *State) countResumed(k resumed, by int) {
	c, _ := db(s).index.resumedCores.Get(k.namespace)
	if c.attempts += by; k.limited {
		c.limited += by * int(k.lacks)
	} else {
		c.resuming += by * int(k.lacks)
	}
	if c.attempts == 0 {
		db(s).index.resumedCores.Delete(k.namespace)
	} else {
		db(s).index.resumedCores.Set(k.namespace, c)
	}
}

func (s *State) resumedOf(r *Attempt) resumed {
	k := resumed{action: r.Action, lacks: r.Width - uint32(r.Cores.Len()), limited: r.Ice == IceLimited}
	if a := db(s).actions.get(r.Action); a != nil { // only rows that are made up have no action
		k.namespace = a.Namespace
	}
	return k
}

func (s *State) addResumed(h *Held, id NamespaceID) {
	c, _ := db(s).index.resumedCores.Get(id)
	h.Resuming, h.Limited = c.resuming, c.limited
}

// FirstLimited returns the oldest action of a namespace that was resumed and waits for its limit of
// cores, nil if none does.
func (s *State) FirstLimited(id NamespaceID) (a *Action) {
	db(s).index.resumed.Ascend(resumed{namespace: id, limited: true}, func(k resumed) bool {
		if k.namespace == id {
			a = s.Action(k.action)
		}
		return false
	})
	return a
}
