package state

import "cmp"

type (
	// queuedOf orders what waits in a queue by namespace, and then by age.
	queuedOf struct {
		queue     QueueKey
		namespace NamespaceID
		id        ActionID
	}
	// waitingOf counts the queued actions of a namespace by the resource that they wait for; that
	// of the zero Queue: for something that namespaces do not compete for.
	waitingOf struct {
		namespace NamespaceID
		resource  QueueKey
		actions   int
	}
)

func (a queuedOf) less(b queuedOf) bool {
	if a.queue != b.queue {
		return a.queue < b.queue
	}
	if a.namespace != b.namespace {
		return a.namespace < b.namespace
	}
	return a.id < b.id
}

func (a waitingOf) less(b waitingOf) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.resource, b.resource)) < 0
}

// Held is what the running actions of a namespace hold.
type Held struct{ Running, Cores, GPUs int }

// countWaiting counts a queued action.
func (s *State) countWaiting(r *Action, by int) {
	k := waitingOf{namespace: r.Namespace, resource: r.Resource().Key()}
	old, _ := db(s).index.waiting.Get(k)
	if k.actions = old.actions + by; k.actions == 0 {
		db(s).index.waiting.Delete(k)
	} else {
		db(s).index.waiting.Set(k)
	}
}

// Waits reports whether actions of a namespace wait for a resource.
func (s *State) Waits(id NamespaceID, resource Queue) bool {
	_, waits := db(s).index.waiting.Get(waitingOf{namespace: id, resource: resource.Key()})
	return waits
}

// NamespaceQueued returns how many actions of a namespace are queued.
func (s *State) NamespaceQueued(id NamespaceID) (n int) {
	db(s).index.waiting.Ascend(waitingOf{namespace: id}, func(k waitingOf) bool {
		if k.namespace == id {
			n += k.actions
		}
		return k.namespace == id
	})
	return n
}

// QueueNamespaces visits the namespaces of which actions wait in a queue. It takes a search for
// each.
func (s *State) QueueNamespaces(q Queue, fn func(NamespaceID) bool) {
	for from := (queuedOf{queue: q.Key()}); ; {
		var hit queuedOf
		db(s).index.queueOf.Ascend(from, func(k queuedOf) bool {
			hit = k
			return false
		})
		if hit.id == 0 || hit.queue != q.Key() || !fn(hit.namespace) {
			return
		}
		from.namespace = hit.namespace + 1
	}
}

// QueuedOf visits the actions of a namespace in a queue from one on, oldest first.
func (s *State) QueuedOf(q Queue, id NamespaceID, from ActionID, fn func(ActionID) bool) {
	db(s).index.queueOf.Ascend(queuedOf{q.Key(), id, from}, func(k queuedOf) bool {
		return k.queue == q.Key() && k.namespace == id && fn(k.id)
	})
}

// HeldBy returns what the running actions of a namespace hold.
func (s *State) HeldBy(id NamespaceID) Held {
	h, _ := db(s).index.held.Get(id)
	return h
}

// countHeld counts what an attempt holds.
func (s *State) countHeld(r *Attempt, by int) {
	a := db(s).actions.get(r.Action)
	if a == nil {
		return // only rows that are made up have no action
	}
	h, _ := db(s).index.held.Get(a.Namespace)
	h.Running += by
	h.Cores += by * r.Cores.Len()
	h.GPUs += by * int(r.Chunk.Units)
	if h == (Held{}) {
		db(s).index.held.Delete(a.Namespace)
	} else {
		db(s).index.held.Set(a.Namespace, h)
	}
}

// recountHeld counts an attempt in place of the row before; nil: there was none.
func (s *State) recountHeld(old, r *Attempt) {
	if old != nil && old.Cores == r.Cores && old.Chunk == r.Chunk {
		return
	}
	if old != nil {
		s.countHeld(old, -1)
	}
	s.countHeld(r, 1)
}
