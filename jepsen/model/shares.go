package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Shares of namespaces (docs/scheduling.md): who is charged what, by whose clock it is whose turn,
// and who may have no more.

type (
	// shares are what operators said of namespaces, and the clocks of what they compete for.
	shares struct {
		settings map[state.NamespaceID]state.NamespaceSettings
		clocks   map[state.Queue]*clocks
	}
	// clocks are those of one resource.
	clocks struct {
		mean uint64 // microseconds
		of   map[state.NamespaceID]*clock
		// unsure: who waited at the time of a grant is not told, or in which order what was granted
		// has ended. settled is the newest entry in which something did.
		unsure  bool
		settled uint64
	}
	clock struct {
		lead int64
		mean uint64
	}
)

const (
	weightMax    = 1000
	heldUnknown  = 1_000_000 // microseconds
	creditGrants = 1024
)

func newShares() shares {
	return shares{settings: map[state.NamespaceID]state.NamespaceSettings{}, clocks: map[state.Queue]*clocks{}}
}

func (m *Model) settingsOf(ns state.NamespaceID) state.NamespaceSettings {
	if s, said := m.shares.settings[ns]; said {
		return s
	}
	return state.NamespaceSettings{Namespace: ns, Weight: 1}
}

// sharing: namespaces take turns.
func (m *Model) sharing() bool { return m.level >= levelResizing && len(m.namespaces) > 1 }

func (m *Model) updateNamespace(c *logv1.UpdateNamespace, got *logv1.Result) error {
	if m.level < levelResizing {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	ns := m.namespaces[orDefault(c.Name)]
	if ns == 0 {
		return refused(got, "NAMESPACE_NOT_FOUND")
	}
	s := m.settingsOf(ns)
	for _, f := range []struct{ from, to *uint32 }{{c.Weight, &s.Weight}, {c.QueuedMax, &s.QueuedMax}, {c.RunningMax, &s.RunningMax}, {c.CoresMax, &s.CoresMax}, {c.GpusMax, &s.GPUsMax}, {c.TrajectoriesMax, &s.TrajectoriesMax}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.MemoryMax != nil {
		s.MemoryMax = *c.MemoryMax
	}
	var v verdict
	v.refuse(s.Weight < 1 || s.Weight > weightMax, "INVALID")
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.shares.settings[ns] = s
	for _, p := range m.pools {
		m.touchPool(p)
	}
	m.onlyArrivals = false
	return result(got, &logv1.Result{Count: 1})
}

// holds is what the running actions of a namespace hold.
func (m *Model) holds(ns state.NamespaceID) (h state.Held) {
	for _, n := range m.nodes {
		for _, a := range n.running {
			if a.Namespace == ns {
				h.Running++
				h.Cores += a.cores.Len()
				h.GPUs += int(a.chunk.Units)
				h.Memory += a.reserved
			}
		}
	}
	for _, t := range m.trajectories {
		if t.Namespace == ns && !t.State.Ended() {
			h.Memory += t.Memory
		}
	}
	return h
}

// limited: actions of the namespace may have to wait for each other.
func (m *Model) limited(ns state.NamespaceID) bool {
	s := m.settingsOf(ns)
	return s.RunningMax > 0 || s.CoresMax > 0 || s.GPUsMax > 0 || s.MemoryMax > 0
}

// takesTurns: namespaces take turns, or actions wait for others of theirs to end. How often actions
// are bypassed is not judged then.
func (m *Model) takesTurns() bool { return m.sharing() || len(m.shares.settings) > 0 }

// mayBeQueued: a namespace has no more actions queued than it may.
func (m *Model) mayBeQueued(v *verdict, ns state.NamespaceID, actions []*logv1.Action) {
	s, queued := m.settingsOf(ns), 0
	if s.QueuedMax > 0 {
		for _, a := range m.actions {
			if a.Namespace == ns && a.State == state.ActionQueued {
				queued++
			}
		}
	}
	never := m.level >= levelResizing && s.QueuedMax > 0 && len(actions) > int(s.QueuedMax)
	v.refuse(never, "UNSATISFIABLE")
	v.refuse(!never && s.QueuedMax > 0 && queued+len(actions) > int(s.QueuedMax), "NAMESPACE_QUEUE_FULL")
	for _, a := range actions {
		n := max(1, a.GangSize)
		v.refuse(s.RunningMax > 0 && n > s.RunningMax, "UNSATISFIABLE")
		v.refuse(s.CoresMax > 0 && n*a.CoresMin > s.CoresMax, "UNSATISFIABLE")
		if g := a.Needs.GetGpus(); g != nil && len(g.Degrees) > 0 {
			v.refuse(s.GPUsMax > 0 && n*g.Degrees[0] > s.GPUsMax, "UNSATISFIABLE")
		}
		v.refuse(s.MemoryMax > 0 && a.TrajectoryId == 0 && uint64(n)*a.MemoryBytes > s.MemoryMax, "UNSATISFIABLE")
	}
}

// mayOpen: a namespace has no more open trajectories than it may, and they no more memory.
func (m *Model) mayOpen(v *verdict, ns state.NamespaceID, memory uint64) {
	s, open := m.settingsOf(ns), 0
	most := s.TrajectoriesMax
	for _, t := range m.trajectories {
		if t.Namespace == ns && !t.State.Ended() {
			open++
		}
	}
	v.refuse(most > 0 && open >= int(most), "NAMESPACE_TRAJECTORIES_FULL")
	if s.MemoryMax > 0 && memory > 0 {
		v.refuse(memory > s.MemoryMax, "UNSATISFIABLE")
		v.refuse(m.holds(ns).Memory+memory > s.MemoryMax, "NAMESPACE_MEMORY_FULL")
	}
}

// withinLimits: with what an action was granted, its namespace holds no more than it may.
func (m *Model) withinLimits(a *action, at *state.Attempt) error {
	if !m.limited(a.Namespace) {
		return nil
	}
	s, h := m.settingsOf(a.Namespace), m.holds(a.Namespace)
	running, cores, gpus := h.Running+1, h.Cores+at.Cores.Len(), h.GPUs+int(at.Chunk.Units)
	resized := at.Least > 0 // cores that others of its namespace give up for it may still be theirs here
	if s.RunningMax > 0 && running > int(s.RunningMax) || s.CoresMax > 0 && cores > int(s.CoresMax) && a.CoresMin > 0 && !resized && !m.anyResizes() ||
		s.GPUsMax > 0 && gpus > int(s.GPUsMax) && at.Chunk.Units > 0 {
		return fmt.Errorf("action %d was granted, and its namespace runs %d actions with %d cores and %d GPUs then, more than %+v allows", a.ID, running, cores, gpus, s)
	}
	if at.Reserved > 0 && s.MemoryMax > 0 && h.Memory+at.Reserved > s.MemoryMax {
		return fmt.Errorf("action %d was granted %d bytes, and its namespace has %d of at most %d already", a.ID, at.Reserved, h.Memory, s.MemoryMax)
	}
	return nil
}

func (m *Model) anyResizes() bool {
	for _, n := range m.nodes {
		if n.Resizes {
			return true
		}
	}
	return false
}

// contended is what an action holds of that namespaces take turns for; none: the zero Queue.
func (a *action) contended() state.Queue {
	switch g := a.GPUs(); {
	case g != nil:
		return state.QueueOfGPUs(a.Pool, g.Class)
	case a.CoresMin > 0:
		return state.QueueOf(state.PoolQueue, a.Pool)
	}
	return state.Queue{}
}

// clocksOf returns the clocks of a resource, which begin when it is first granted.
func (m *Model) clocksOf(q state.Queue) *clocks {
	if m.shares.clocks[q] == nil {
		m.shares.clocks[q] = &clocks{of: map[state.NamespaceID]*clock{}}
	}
	return m.shares.clocks[q]
}

// lead is by how much a namespace is ahead.
func (m *Model) lead(q state.Queue, ns state.NamespaceID) int64 {
	if k := m.shares.clocks[q]; k != nil && k.of[ns] != nil {
		return k.of[ns].lead
	}
	return 0
}

func (k *clocks) takes(c *clock) uint64 {
	return cmp.Or(c.mean, k.mean, heldUnknown)
}

// waitingFor are the actions that wait for a resource, whatever node they wait for.
func (m *Model) waitingFor(a *action) (all []*action) {
	if a.GPUs() != nil {
		return a.pool.gpuQueue(a.GPUs().Class).waiting
	}
	all = slices.Clone(a.pool.queue.waiting)
	for _, n := range m.nodes {
		for _, o := range n.queue.waiting {
			if o.pool == a.pool {
				all = append(all, o)
			}
		}
	}
	return all
}

// charge moves the clocks on with a grant, and returns what it costs its namespace.
func (m *Model) charge(a *action, at *state.Attempt) uint64 {
	q := a.contended()
	if !m.sharing() || q == (state.Queue{}) {
		return 0
	}
	k, waits := m.clocksOf(q), map[state.NamespaceID]bool{}
	for _, o := range m.waitingFor(a) {
		waits[o.Namespace] = true
		k.unsure = k.unsure || o.joined == m.applied || m.aside(o)
	}
	if k.of[a.Namespace] == nil {
		k.of[a.Namespace] = &clock{}
	}
	own, units := k.of[a.Namespace], uint64(a.CoresMin)
	if at.Chunk.Units > 0 {
		units = uint64(at.Chunk.Units)
	}
	cost, passed := units*k.takes(own), max(own.lead, 0)
	if k.unsure {
		cost = at.ChargedUS
	}
	own.lead += max(1, int64(cost)/int64(m.settingsOf(a.Namespace).Weight)) - passed
	for ns, c := range k.of {
		if ns == a.Namespace {
			continue
		}
		c.lead -= passed
		if !waits[ns] {
			c.lead = max(c.lead, 0)
		}
		c.lead = max(c.lead, -int64(creditGrants*k.takes(c)/uint64(m.settingsOf(ns).Weight)))
	}
	return cost
}

// settleShare corrects what a namespace was charged for an attempt that ends.
func (m *Model) settleShare(a *action) {
	k := m.shares.clocks[a.contended()]
	if a.charged == 0 || k == nil {
		return
	}
	c := k.of[a.Namespace]
	if c == nil {
		c = &clock{}
		k.of[a.Namespace] = c
	}
	k.unsure, k.settled = k.unsure || k.settled == m.applied, m.applied
	held := uint64(m.now-a.StartedAt) / 1000
	used := a.usedUntil(m.now) / 1000
	if a.GPUs() != nil {
		used = held * uint64(a.chunk.Units)
	}
	c.lead += (int64(used) - int64(a.charged)) / int64(m.settingsOf(a.Namespace).Weight)
	mean := func(old uint64) uint64 {
		if old == 0 {
			return max(held, 1)
		}
		return max(1, (old*31+max(held, 1))/32)
	}
	c.mean, k.mean, a.charged = mean(c.mean), mean(k.mean), 0
}

// isItsNamespacesTurn: no other namespace is further behind whose oldest in the same queue could
// have had what an action was granted.
func (m *Model) isItsNamespacesTurn(a *action, n *node, couldHave func(*action) bool) error {
	if !m.sharing() {
		return nil
	}
	q, seen := a.contended(), map[state.NamespaceID]bool{a.Namespace: true}
	for _, o := range m.queueOf(a).waiting {
		if m.ending(o) || seen[o.Namespace] {
			continue
		}
		seen[o.Namespace] = true
		if m.justJoined(o) || m.aside(o) || o.ReservedOn != 0 || m.released(o) || m.limited(o.Namespace) || m.limited(a.Namespace) {
			continue
		}
		if m.lead(q, o.Namespace) < m.lead(q, a.Namespace) && couldHave(o) && !m.clocksOf(q).unsure {
			return fmt.Errorf("action %d of namespace %d was granted on node %s before action %d of namespace %d, which is further behind (%d, %d) and asks for no more",
				a.ID, a.Namespace, n.Name, o.ID, o.Namespace, m.lead(q, o.Namespace), m.lead(q, a.Namespace))
		}
	}
	return nil
}

// keptForIt: where namespaces take turns, a node may have been reserved for an action, against
// older ones too. In which moment of an entry that was is not told.
func (m *Model) keptForIt(a *action) bool { return m.sharing() && (a.ReservedOn != 0 || a.passed > 0) }

// compareShares compares the settings, and the clocks where all is told that moves them. Those of
// quotas are not judged: no event says when units are given.
func (m *Model) compareShares() error {
	for name, ns := range m.namespaces {
		if got, want := *m.s.SettingsOf(ns), m.settingsOf(ns); got != want {
			return fmt.Errorf("namespace %s has settings %+v, must be %+v", name, got, want)
		}
	}
	for _, q := range slices.SortedFunc(maps.Keys(m.shares.clocks), func(a, b state.Queue) int { return cmp.Compare(a.Key(), b.Key()) }) {
		k, row := m.shares.clocks[q], m.s.Clocks(q)
		if row == nil {
			if k.unsure = false; len(k.of) > 0 {
				return fmt.Errorf("there are no clocks of %v, must be %+v", q, k)
			}
			continue
		}
		if k.unsure {
			k.learn(row)
			continue
		}
		for ns, c := range k.of {
			if got := row.Clock(ns); got.Lead != c.lead || got.MeanUS != c.mean || row.MeanUS != k.mean {
				return fmt.Errorf("the clock of namespace %d for %v is %+v with a mean of %d us, must be %+v with %d", ns, q, got, row.MeanUS, *c, k.mean)
			}
		}
	}
	return nil
}

func (k *clocks) learn(row *state.FairClocks) {
	k.unsure, k.mean = false, row.MeanUS
	clear(k.of)
	for _, c := range row.Clocks {
		k.of[c.Namespace] = &clock{c.Lead, c.MeanUS}
	}
}

// forgetNamespaceShares forgets what is known of a namespace that is deleted.
func (m *Model) forgetNamespaceShares(ns state.NamespaceID) {
	delete(m.shares.settings, ns)
	for _, k := range m.shares.clocks {
		delete(k.of, ns)
	}
}

// forgetPoolShares forgets the clocks of a pool that is deleted.
func (m *Model) forgetPoolShares(id state.PoolID) {
	for q := range m.shares.clocks {
		pool, _ := q.GPUs()
		if q == state.QueueOf(state.PoolQueue, id) || q.Kind == state.GPUQueue && pool == id {
			delete(m.shares.clocks, q)
		}
	}
}
