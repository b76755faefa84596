package model

import (
	"cmp"
	"slices"

	"rota/fsm/state"
)

// What the state machine has a row for, with what the model knows beside.
type (
	pool struct {
		id     state.PoolID
		name   string
		halted bool
		nodes  []*node
		queue  queue
		// gpuQueues are those of classes of GPUs, coreless that of actions without
		// cores.
		gpuQueues map[state.GPUClassID]*queue
		coreless  queue
		gangs     queue         // first actions
		pending   []*trajectory // wait for memory, oldest first
		touched   bool
	}
	node struct {
		state.Node
		pool     *pool
		queue    queue // of the trajectories that live here
		coreless queue // of those that have no cores
		running  []*action
		hosted   []*trajectory
		models   []state.Resident // in the memory of its GPUs
		engines  map[place]state.EngineInstance
		touched  bool
		// chose are those that could have started here and wait for more cores.
		chose  map[state.ActionID]bool
		served bool // one that had been bypassed started on it in this entry
	}
	trajectory struct {
		state.Trajectory
		pool    *pool
		live    []*action
		touched bool
	}
	action struct {
		state.Action
		pool        *pool
		cores       state.CoreSet // of the live attempt
		incarnation uint64
		reserved    uint64
		chunk       state.Chunk
		setUp       int64
		uses        []use  // quotas, in the order in which it gets them
		joined      uint64 // entry in which it was given a quota last
		// How often younger ones started while this was the oldest that waited for
		// their node, and when the first did.
		passed   uint32
		passedAt int64
		judged   uint64 // newest entry that counted
		freed    uint64 // newest entry in which what was reserved for it was taken away, if only for a moment
		touched  bool
		class    *class // nil: none
		// follows: the cores of its attempt may change, all but the anchor. used is what it
		// had of them before since, in core nanoseconds.
		follows bool
		anchor  uint32
		used    uint64
		since   int64
		// shares: it has no cores to itself, but shares some of its node.
		shares bool
		// charged is what its namespace was charged for the live attempt, in unit-microseconds.
		charged uint64
		// ice, pause and width are those of its attempt.
		ice          state.Ice
		pause, width uint32
	}
	request struct {
		expires int64
		verb    state.Verb
		digest  uint64
		// namespace is 0 below the level that counts requests by namespace.
		namespace state.NamespaceID
		first     uint64
		count     uint32
	}
)

// queue has waiting actions, oldest first.
type queue struct{ waiting []*action }

func (q *queue) find(id state.ActionID) (int, bool) {
	return slices.BinarySearchFunc(q.waiting, id, func(a *action, id state.ActionID) int { return cmp.Compare(a.ID, id) })
}

func (q *queue) add(a *action) {
	if n := len(q.waiting); n == 0 || q.waiting[n-1].ID < a.ID {
		q.waiting = append(q.waiting, a)
		return
	}
	i, _ := q.find(a.ID)
	q.waiting = slices.Insert(q.waiting, i, a)
}

// olderThan reports whether anybody older than an action waits here.
func (q *queue) olderThan(a *action) bool {
	return len(q.waiting) > 0 && q.waiting[0].ID < a.ID
}

func (q *queue) remove(a *action) {
	i, ok := q.find(a.ID)
	switch {
	case !ok:
	case i == 0:
		q.waiting = q.waiting[1:]
	default:
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// size is what an action counts for in the limits of bytes.
func (a *action) size() uint64 {
	n := actionOverhead + len(a.Spec) + len(a.Labels) + needsSize(a.Needs)
	if a.Result != nil {
		n += len(a.Result.Stdout) + len(a.Result.Stderr) + len(a.Result.Message)
	}
	return uint64(n)
}

func needsSize(n *state.Needs) int {
	if n == nil {
		return 0
	}
	size := needsOverhead + 4*len(n.Cores) + 8*len(n.Quotas)
	if n.Profile != nil {
		size += needsOverhead + 16*len(n.Profile.Points)
	}
	if n.GPUs != nil {
		size += needsOverhead + len(n.GPUs.Model)
	}
	return size
}

// queueOf returns the queue that an action waits in, nil while its trajectory
// has no node.
func (m *Model) queueOf(a *action) *queue {
	pinned := a.Trajectory != 0
	switch {
	case a.Gang != 0 && a.ID != a.Gang:
		return nil // the first of its gang waits for it
	case a.Gang != 0:
		return &a.pool.gangs
	case pinned && a.Node == 0:
		return nil
	case a.missing() != nil:
		return &a.missing().quota.queue
	case a.GPUs() != nil:
		return a.pool.gpuQueue(a.GPUs().Class)
	case a.CoresMin == 0 && pinned:
		return &m.nodeByID[a.Node].coreless
	case a.CoresMin == 0:
		return &a.pool.coreless
	case pinned:
		return &m.nodeByID[a.Node].queue
	}
	return &a.pool.queue
}

func (n *node) usable() bool { return n.State == state.NodeUp && !n.Draining }

// couldHold: what it has suffices for an action when nothing else is there.
func (n *node) couldHold(a *state.Action) bool {
	if d := a.GPUs(); d != nil && (n.GPUs.Class != d.Class || !n.couldGive(d.Degrees[0], 0) || n.GPUs.Memory < d.Memory) {
		return false
	}
	memory := a.Memory
	if a.Trajectory != 0 {
		memory = 0
	}
	return n.Cores().Len() >= int(a.CoresMin) && n.Memory >= memory && n.Bandwidth >= a.Bandwidth()
}

func (n *node) reservedBytes() (bytes uint64) {
	for _, t := range n.hosted {
		bytes += t.Memory
	}
	return bytes
}

func remove[T comparable](list []T, item T) []T {
	if i := slices.Index(list, item); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func (m *Model) touchAction(a *action) {
	if !a.touched {
		a.touched = true
		m.touchedActions = append(m.touchedActions, a)
	}
}

func (m *Model) touchTrajectory(t *trajectory) {
	if !t.touched {
		t.touched = true
		m.touchedTrajectories = append(m.touchedTrajectories, t)
	}
}

func (m *Model) touchNode(n *node) {
	if !n.touched {
		n.touched = true
		m.touchedNodes = append(m.touchedNodes, n)
	}
	m.touchPool(n.pool)
}

func (m *Model) touchPool(p *pool) {
	if !p.touched {
		p.touched = true
		m.touchedPools = append(m.touchedPools, p)
	}
}

// deadline is something that is due at a log time: an ID of an action or a
// trajectory, or a request.
type deadline struct {
	at      int64
	id      uint64
	kind    deadlineKind
	request string
}

type deadlineKind uint8

const (
	forgetRequest deadlineKind = iota
	expireAction
	closeIdle
	dropTrajectory
	dropAction
	stopTurn
	dropTurn
	dropJob
	migrationDue
	dropRollout
)

// deadlines is a heap, earliest first and among equals the smallest ID.
type deadlines []deadline

func (d deadline) before(e deadline) bool {
	switch {
	case d.at != e.at:
		return d.at < e.at
	case d.id != e.id:
		return d.id < e.id
	case d.kind != e.kind:
		return d.kind < e.kind
	}
	return d.request < e.request
}

func (h *deadlines) push(d deadline) {
	*h = append(*h, d)
	l := *h
	for i := len(l) - 1; i > 0 && l[i].before(l[(i-1)/2]); i = (i - 1) / 2 {
		l[i], l[(i-1)/2] = l[(i-1)/2], l[i]
	}
}

func (h *deadlines) pop() deadline {
	l := *h
	first := l[0]
	l[0] = l[len(l)-1]
	l[len(l)-1] = deadline{}
	l = l[:len(l)-1]
	*h = l
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(l); child++ {
			if l[child].before(l[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		l[i], l[least] = l[least], l[i]
		i = least
	}
}
