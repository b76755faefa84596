package model

import (
	"cmp"
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Limits on something outside, counted as the other side may see them: a call may
// reach it at any time from the grant to the end of the attempt, and counts there
// for a window more.

const (
	quotasMax     = 1024
	quotaUnitsMax = 1_000_000_000
	quotaKeysMax  = 64
	actionQuotas  = 8
	windowMin     = 100_000_000
	windowMax     = 30 * 24 * 3600 * 1_000_000_000
	// Units of a window come back up to a hundredth of it later than they might.
	windowLateness = 100
)

// Kinds of quotas, as the API numbers them.
const (
	concurrency = 1
	fixedWindow = 2
	sliding     = 3
)

type quota struct {
	id     state.QuotaID
	name   string
	kind   uint32
	limit  uint32
	window int64
	keys   uint32
	halted bool
	queue  queue
	calls  []*call
	// What is known of calls that the provider refused.
	adaptive  bool
	throttled uint64
	pressed   map[uint32]*pressed
	// How many attempts told what they used, and how much that was.
	settled, settledUnits uint64
}

// call is units of one key that the other side may count.
type call struct {
	action *action
	key    uint32
	units  uint64
	ended  bool
	until  int64 // of one that has ended: when its window has passed
}

// use is what an action needs of a quota.
type use struct {
	quota *quota
	units uint32
}

// counted returns the units of a key that the other side may count; with late,
// also those that may come back somewhat later.
func (q *quota) counted(key uint32, now int64, late bool) (units uint64) {
	for _, c := range q.calls {
		until := c.until
		if late {
			until += q.window/windowLateness + 1
		}
		if c.key == key && (!c.ended || until > now) {
			units += c.units
		}
	}
	return units
}

func (m *Model) createQuota(c *logv1.CreateQuota, got *logv1.Result) error {
	var v verdict
	if m.level < levelResizing && c.Adaptive {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	windowed := c.Kind == fixedWindow || c.Kind == sliding
	v.refuse(c.Name == "" || len(c.Name) > nameBytesMax || !windowed && c.Kind != concurrency, "INVALID")
	v.refuse(c.Limit == 0 || c.Limit > quotaUnitsMax || c.Keys > quotaKeysMax, "INVALID")
	v.refuse(windowed && (c.WindowNs < windowMin || c.WindowNs > windowMax) || !windowed && c.WindowNs != 0, "INVALID")
	v.refuse(m.quotas[c.Name] != nil, "QUOTA_EXISTS")
	v.refuse(len(m.quotas) >= quotasMax, "TOO_MANY_QUOTAS")
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.lastQuota++
	q := &quota{
		id: m.lastQuota, name: c.Name, kind: c.Kind, limit: c.Limit, window: c.WindowNs, keys: max(1, c.Keys),
		adaptive: c.Adaptive, pressed: make(map[uint32]*pressed),
	}
	m.quotas[q.name] = q
	m.quotaList = append(m.quotaList, q)
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) updateQuota(c *logv1.UpdateQuota, got *logv1.Result) error {
	q := m.quotas[c.Name]
	if m.level < levelResizing && c.Adaptive != nil {
		return refused(got, "LEVEL_NOT_ACTIVE")
	}
	if q == nil {
		return refused(got, "QUOTA_NOT_FOUND")
	}
	if c.Limit > quotaUnitsMax || c.Keys > quotaKeysMax {
		return refused(got, "INVALID")
	}
	q.limit, q.keys = cmp.Or(c.Limit, q.limit), cmp.Or(c.Keys, q.keys)
	q.halted = q.halted && !c.Resume
	if c.Adaptive != nil {
		q.adaptive = *c.Adaptive
	}
	if c.Limit != 0 || !q.adaptive {
		clear(q.pressed)
	}
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) deleteQuota(c *logv1.DeleteQuota, got *logv1.Result) error {
	q := m.quotas[c.Name]
	if q == nil {
		return refused(got, "QUOTA_NOT_FOUND")
	}
	var v verdict
	for _, a := range m.actions {
		v.refuse(!a.State.Final() && slices.ContainsFunc(a.uses, func(u use) bool { return u.quota == q }), "QUOTA_IN_USE")
	}
	for key := range uint32(quotaKeysMax) {
		v.refuse(q.counted(key, m.now, false) > 0, "QUOTA_IN_USE")
		v.tolerate(q.counted(key, m.now, true) > 0, "QUOTA_IN_USE")
	}
	if ok, err := v.judge(got); !ok {
		return err
	}
	delete(m.quotas, q.name)
	m.quotaList = remove(m.quotaList, q)
	return result(got, &logv1.Result{Count: 1})
}

// namesQuotas says why what an action asks of quotas must be refused.
func (m *Model) namesQuotas(v *verdict, a *logv1.Action) {
	uses := a.Needs.GetQuotas()
	v.refuse(len(uses) > actionQuotas, "INVALID")
	v.refuse(a.CoresMin == 0 && (a.CoresMax > 0 || len(uses) == 0 && a.Needs.GetGpus() == nil), "INVALID")
	v.refuse(a.CoresMin == 0 && a.Needs.GetGpus() == nil && a.Needs.GetBandwidthBps() != 0, "INVALID")
	for i, u := range uses {
		q := m.quotas[u.Quota]
		if q == nil {
			v.refuse(true, "QUOTA_NOT_FOUND")
			continue
		}
		v.refuse(u.Units == 0, "INVALID")
		v.refuse(u.Units > q.limit, "UNSATISFIABLE")
		v.refuse(slices.ContainsFunc(uses[:i], func(o *logv1.QuotaUse) bool { return o.Quota == u.Quota }), "INVALID")
	}
}

// usesOf are what an action needs of quotas, in the order in which it gets them.
func (m *Model) usesOf(n *logv1.Needs) (uses []use) {
	for _, u := range n.GetQuotas() {
		uses = append(uses, use{m.quotas[u.Quota], u.Units})
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.quota.id, b.quota.id) })
	return uses
}

// missing returns what an action waits for, nil if it has all its quotas.
func (a *action) missing() *use {
	if int(a.QuotasHeld) == len(a.uses) {
		return nil
	}
	return &a.uses[a.QuotasHeld]
}

// giveBack ends the calls of an action, of which those that began count for a
// window more.
func (m *Model) giveBack(a *action) {
	began := a.State == state.ActionRunning
	for i := range a.QuotaKeys {
		q := a.uses[i].quota
		at := slices.IndexFunc(q.calls, func(c *call) bool { return c.action == a && !c.ended })
		if !began || q.kind == concurrency {
			q.calls = slices.Delete(q.calls, at, at+1)
			continue
		}
		c := q.calls[at]
		c.ended, c.until, c.action = true, m.now+q.window, nil
	}
	a.QuotasHeld, a.QuotaKeys = 0, nil
}

// learnTakes takes over who was given which quota, which no event says, as far as
// it is allowed by now. What is not is found again when something has come back,
// and at the end.
func (m *Model) learnTakes() error {
	for _, q := range m.quotaList { // actions go from one to the next in this order
		for _, a := range slices.Clone(q.queue.waiting) {
			row := m.s.Action(a.ID)
			took := row != nil && row.QuotasHeld > a.QuotasHeld && int(a.QuotasHeld) < len(row.QuotaKeys)
			switch {
			case !took && (m.cannotTake(a) || m.justJoined(a) || row == nil || row.State.Final()):
				continue // or it ends in this entry, maybe before others took theirs
			case !took:
				if younger := m.tookLater(q, a); younger != nil {
					return fmt.Errorf("action %d was given units of quota %s before action %d, which is older", younger.ID, q.name, a.ID)
				}
				if m.sharing() || m.limited(a.Namespace) {
					continue // others take turns with it
				}
			case m.mayTake(q, a, row.QuotaKeys[a.QuotasHeld]):
				m.take(q, a, row.QuotaKeys[a.QuotasHeld])
				continue
			}
			break
		}
	}
	return nil
}

// cannotTake: nothing could be given to it, whatever is free.
func (m *Model) cannotTake(a *action) bool {
	u := a.missing()
	return a.pool.halted || m.ending(a) || u.units > u.quota.limit || m.level >= levelResizing && m.wouldGoAside(a)
}

// wouldGoAside: whatever it is given first, a later quota or all nodes are too small for it.
func (m *Model) wouldGoAside(a *action) bool {
	for _, u := range a.uses[a.QuotasHeld:] {
		if u.units > u.quota.limit {
			return true
		}
	}
	return a.Trajectory == 0 && !slices.ContainsFunc(a.pool.nodes, func(n *node) bool { return n.usable() && n.couldHold(&a.Action) })
}

// tookLater returns a younger action that was given units of a quota, though an
// older one waits for them still.
func (m *Model) tookLater(q *quota, older *action) *action {
	for _, a := range q.queue.waiting {
		row := m.s.Action(a.ID)
		mine := !m.sharing() || a.Namespace == older.Namespace
		if mine && a.ID > older.ID && row != nil && row.QuotasHeld > a.QuotasHeld {
			return a
		}
	}
	return nil
}

// mayTake: the other side cannot see more than it allows of the key.
func (m *Model) mayTake(q *quota, a *action, key uint32) bool {
	return !m.cannotTake(a) && !m.fullBeside(a) && !q.halted && key < q.keys && q.allows(key, a.missing().units, q.counted(key, m.now, false), m.now)
}

// fullBeside: with an action, its namespace would run more or hold more GPUs than it may, beside those that
// have units of the same quota, and all others, and wait for a node of a pool that is not halted. Those that
// got units of another quota last, in this entry, may have got them later.
func (m *Model) fullBeside(a *action) bool {
	s := m.settingsOf(a.Namespace)
	if s.RunningMax == 0 && s.GPUsMax == 0 {
		return false
	}
	h, q := m.holds(a.Namespace), a.missing().quota
	for _, b := range m.actions {
		shares := b.Namespace == a.Namespace && slices.ContainsFunc(b.uses, func(u use) bool { return u.quota == q })
		if !shares || b.State != state.ActionQueued || b.missing() != nil || b.pool.halted || m.aside(b) {
			continue
		}
		if !m.justJoined(b) || b.uses[len(b.uses)-1].quota == q {
			h.Running++
			h.GPUs += b.leastGPUs()
		}
	}
	gpus := a.leastGPUs()
	return s.RunningMax > 0 && h.Running >= int(s.RunningMax) || s.GPUsMax > 0 && gpus > 0 && h.GPUs+gpus > int(s.GPUsMax)
}

// leastGPUs is how many GPUs an action needs at least.
func (a *action) leastGPUs() int {
	if g := a.GPUs(); g != nil {
		return int(g.Degrees[0])
	}
	return 0
}

func (m *Model) take(q *quota, a *action, key uint32) {
	m.queueOf(a).remove(a)
	q.calls = append(q.calls, &call{action: a, key: key, units: uint64(a.missing().units)})
	a.QuotasHeld++
	a.QuotaKeys = append(slices.Clone(a.QuotaKeys), key)
	a.joined = m.applied
	m.queueOf(a).add(a)
	if a.Trajectory != 0 {
		m.onlyArrivals = false // the pass is over the trajectory's node
	}
	m.touchAction(a)
	m.touchPool(a.pool)
}

// compareQuotas: nobody has what it should not have, and nobody waits for what is
// free.
func (m *Model) compareQuotas() error {
	for _, q := range m.quotaList {
		q.calls = slices.DeleteFunc(q.calls, func(c *call) bool { return c.ended && c.until+q.window/windowLateness+1 < m.now })
		if err := m.compareQuota(q); err != nil {
			return err
		}
		for _, a := range q.queue.waiting {
			if m.s.Action(a.ID).QuotasHeld > a.QuotasHeld {
				return m.withoutUnits(a)
			}
		}
		if due, _, _, ok := m.s.Timer(); m.s.HasWork() || q.halted || ok && due <= m.now {
			continue
		}
		if err := m.waitsForNothing(q); err != nil {
			return err
		}
	}
	return nil
}

// withoutUnits says why what an action has of the quota that it misses is not its.
func (m *Model) withoutUnits(a *action) error {
	q, row := a.missing().quota, m.s.Action(a.ID)
	if row.QuotasHeld <= a.QuotasHeld {
		return fmt.Errorf("action %d was granted without units of quota %s", a.ID, q.name)
	}
	key := row.QuotaKeys[a.QuotasHeld]
	return fmt.Errorf("action %d was given %d units of quota %s of key %d, of which the other side may count %d of %d%s",
		a.ID, a.missing().units, q.name, key+1, q.counted(key, m.now, false), q.limit, q.pressed[key])
}

// waitsForNothing: the first that waits for a quota finds no key that has enough.
func (m *Model) waitsForNothing(q *quota) error {
	for _, a := range q.queue.waiting {
		if m.cannotTake(a) {
			continue
		}
		if m.limited(a.Namespace) || m.sharing() && m.needLess(q, a) {
			return nil // it may be another's turn, who needs more
		}
		for key := range q.keys {
			if n := q.counted(key, m.now, true); q.allows(key, a.missing().units, n, m.now) {
				return fmt.Errorf("action %d waits for %d units of quota %s, of key %d no more than %d of %d are in use%s",
					a.ID, a.missing().units, q.name, key+1, n, q.limit, q.pressed[key])
			}
		}
		return nil
	}
	return nil
}

// compareQuota compares what the row says of a quota: no less in use than the other
// side may count, no more than may come back late.
func (m *Model) compareQuota(q *quota) error {
	got := m.s.QuotaByName(q.name)
	if got == nil || got.ID != q.id || uint32(got.Kind) != q.kind || got.Limit != q.limit || got.WindowNS != q.window || got.Keys != q.keys || (got.Halted != "") != q.halted {
		return fmt.Errorf("quota %s is %+v, must be %+v", q.name, got, *q)
	}
	if err := cmp.Or(m.comparePressed(q, got), q.compareSettled(got)); err != nil {
		return err
	}
	for key, u := range got.Uses {
		least, most := q.counted(uint32(key), m.now, false), q.counted(uint32(key), m.now, true)
		if n := u.InUse(); n < least || n > most && !m.s.HasWork() && !m.timersLeft() {
			return fmt.Errorf("quota %s has %d units of key %d in use, must be %d to %d", q.name, n, key+1, least, most)
		}
	}
	return nil
}

// timersLeft: more was due than one entry does.
func (m *Model) timersLeft() bool {
	due, _, _, ok := m.s.Timer()
	return ok && due <= m.now
}

// corelessTurn: actions without cores start strictly in order, where the fewest
// attempts run.
func (m *Model) corelessTurn(a *action, n *node) error {
	if a.missing() != nil {
		return m.withoutUnits(a)
	}
	for _, older := range m.queueOf(a).waiting {
		if older.ID < a.ID && !m.limited(older.Namespace) && !m.ending(older) && !m.justJoined(older) && !m.aside(older) {
			return fmt.Errorf("action %d was granted before action %d, which is older and has no cores either", a.ID, older.ID)
		}
	}
	if a.reserves() > 0 {
		if head := m.waitsForMemory(n); head != nil && head.ID < a.ID && !m.sharing() {
			if err := m.pass(head, a, n); err != nil {
				return err
			}
		}
	}
	if a.Trajectory != 0 || len(a.pool.nodes) > choices {
		return nil
	}
	for _, o := range a.pool.nodes {
		if m.takesCoreless(o, a) && o.Running < n.Running {
			return fmt.Errorf("action %d was granted on node %s, which runs %d attempts, node %s runs %d", a.ID, n.Name, n.Running, o.Name, o.Running)
		}
	}
	return nil
}

// waitsForMemory is the oldest action that waits for cores and memory of any node
// that could hold it, has none reserved for it and is not deferred. Those without
// cores take no memory before it for ever.
func (m *Model) waitsForMemory(n *node) *action {
	for _, a := range m.inLine(n.pool.queue.waiting, window) {
		if a.ReservedOn == 0 && a.reserves() > 0 && n.couldHold(&a.Action) && !m.defers(a, n) {
			if m.justJoined(a) {
				return nil
			}
			return a
		}
	}
	return nil
}

// justJoined: it got the quota before in this entry, maybe after what is judged.
func (m *Model) justJoined(a *action) bool { return a.joined == m.applied }

// takesCoreless: an action without cores and without a trajectory could start there.
func (m *Model) takesCoreless(n *node, a *action) bool {
	kept := n.ReservedFor != 0 && n.ReservedFor != a.ID || m.reservedFor(n) != 0 && m.reservedFor(n) != a.ID
	return n.usable() && n.FreeMemory >= a.Memory && (a.Memory == 0 || !kept)
}

// corelessForgotten returns an action without cores that should have started.
func (m *Model) corelessForgotten(p *pool) *action {
	for _, n := range p.nodes {
		for _, a := range n.coreless.waiting {
			if n.State == state.NodeUp && !m.ending(a) && !m.limited(a.Namespace) {
				return a
			}
		}
	}
	for _, first := range m.inLine(p.coreless.waiting, 1) {
		for _, n := range p.nodes {
			if m.takesCoreless(n, first) && !m.limited(first.Namespace) {
				return first
			}
		}
	}
	return nil
}

// needLess: an action that waits for a quota needs less of it than one of another namespace.
func (m *Model) needLess(q *quota, a *action) bool {
	return slices.ContainsFunc(q.queue.waiting, func(o *action) bool {
		return o.Namespace != a.Namespace && o.missing() != nil && o.missing().units > a.missing().units
	})
}
