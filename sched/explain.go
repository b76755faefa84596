package sched

import (
	"fmt"

	"rota/fsm/state"
	"rota/sched/order"
	"rota/sched/place"
)

const (
	// aheadCounted bounds the work of counting who is ahead.
	aheadCounted = 1000
	// elsewhereMax bounds the nodes that are looked at to say what is free.
	elsewhereMax = 64
	// outSeen bounds the nodes that are looked at to say which GPUs are out of use, outShown
	// those that are named.
	outSeen, outShown = 4096, 3
)

// Explain says in one sentence what a queued action waits for at a log time, which
// may be later than that of the state, or why a running one has as many cores as it has;
// empty if there is nothing to say.
func Explain(v *state.State, a *state.Action, now int64) string {
	switch {
	case a.State == state.ActionRunning:
		return explainCores(v, a)
	case a.State != state.ActionQueued:
		return ""
	}
	pool := v.Pool(a.Pool)
	if pool.Halted != "" {
		return fmt.Sprintf("waits for an operator: pool %q is halted (%s)", pool.Name, pool.Halted)
	}
	if paused(v, a) && !ending(v, a) {
		return fmt.Sprintf("waits until its trajectory %d is resumed, which is paused; run: rota trajectory resume %d", a.Trajectory, a.Trajectory)
	}
	if a.Gang != 0 {
		return explainGang(v, a, pool)
	}
	if ending(v, a) && a.Queue() != (state.Queue{}) {
		return fmt.Sprintf("waits to be canceled with its trajectory %d, which is being closed", a.Trajectory)
	}
	if text := explainLimit(v, a); text != "" {
		return text
	}
	if use, ok := waitsForUnits(v, a); ok {
		return explainQuota(v, a, use, max(now, v.Meta().Now))
	}
	switch {
	case a.GPUs() != nil:
		return explainGPUs(v, a, pool)
	case a.CoresMin == 0 && a.Trajectory == 0:
		return explainCoreless(v, a, pool)
	}
	if n := couldStart(v, a); n != nil {
		return explainChoice(v, a, n)
	}
	if a.Trajectory != 0 {
		return explainPinned(v, a)
	}
	return explainFree(v, a, pool)
}

// waitsForUnits returns what an action waits for of which quota: of one set aside, the quota whose limit
// is too low. One set aside that no quota keeps waits for a node before it waits for units.
func waitsForUnits(v *state.State, a *state.Action) (use state.QuotaUse, ok bool) {
	if a.Aside {
		return beyondLimit(v, a)
	}
	use, ok = a.Missing()
	return use, ok && a.Queue() != (state.Queue{})
}

// couldStart returns a node on which an action could start, nil if there is none.
func couldStart(v *state.State, a *state.Action) *state.Node {
	if a.Trajectory == 0 {
		n, _ := place.ForAction(v, a)
		return n
	}
	if n := v.Node(a.Node); n != nil && n.State == state.NodeUp && place.Fits(n, a) {
		return n
	}
	return nil
}

// explainChoice says why an action waits that could start.
func explainChoice(v *state.State, a *state.Action, n *state.Node) string {
	if v.HasWork() {
		return fmt.Sprintf("waits for its turn: it could start on node %s%s", n.Name, ahead(v, a))
	}
	if behindUnfit(v, a) {
		return fmt.Sprintf("could start on node %s, and waits until one of the %d actions before it that do not fit anywhere has left the queue%s",
			n.Name, LookAhead, ahead(v, a))
	}
	d, next, known := demands{view: v}, int64(0), 0
	v.Attempts(n.ID, func(t *state.Attempt) bool {
		if ns, ok := d.duration(v.Action(t.Action), max(1, int32(KeyUnits(t)))); ok {
			if left := max(0, ns-(v.Meta().Now-t.StartedAt)); known == 0 || left < next {
				next = left
			}
			known++
		}
		return true
	})
	running, which := fmt.Sprintf("%d actions run there", n.Running), "the first of them"
	if n.Running == 1 {
		running, which = "1 action runs there", "which"
	}
	if known > 0 {
		running += fmt.Sprintf(", %s is expected to end in %d ms", which, next/1_000_000)
	}
	return fmt.Sprintf("could start with %s on node %s, where %d are free, and waits because more cores for each are better on the whole: %s%s",
		cores(a.CoresMin), n.Name, n.Available(), running, ahead(v, a))
}

// behindUnfit reports whether so many older actions fit nowhere that a pass ends before
// it comes to this one.
func behindUnfit(v *state.State, a *state.Action) bool {
	unfit := 0
	for _, id := range order.Oldest(v, a.Queue(), 0, aheadCounted) {
		if id >= a.ID || unfit == LookAhead {
			break
		}
		if b := v.Action(id); !ending(v, b) && couldStart(v, b) == nil {
			unfit++
		}
	}
	return unfit == LookAhead
}

func explainPinned(v *state.State, a *state.Action) string {
	if a.Node == 0 {
		t := v.Trajectory(a.Trajectory)
		if first := v.PendingTrajectory(t.Pool, 0); !t.Aside && first != nil && first.ID < t.ID {
			return fmt.Sprintf("waits for its trajectory %d, which waits for a node behind trajectory %d: the trajectories of a pool are given nodes in order", t.ID, first.ID)
		}
		if t.Container {
			return fmt.Sprintf("waits for its trajectory %d, which waits for a node that runs containers and has %d bytes of free memory", t.ID, t.Memory)
		}
		return fmt.Sprintf("waits for its trajectory %d, which waits for a node with %d bytes of free memory%s", t.ID, t.Memory, mostMemory(v, a.Pool))
	}
	n := v.Node(a.Node)
	if shape := n.Shape(); !place.Holds(&shape, a) {
		return fmt.Sprintf("can never start: it asks for %s, and node %s of its trajectory has %s in all; cancel it",
			besides(a), n.Name, freeOf(shape.Cores, shape.Memory, shape.Bandwidth, a))
	}
	if b := a.Bandwidth(); b > n.FreeBandwidth && n.Available() >= int(a.CoresMin) {
		return fmt.Sprintf("waits for %d bit/s on node %s, which has %d free%s%s", b, n.Name, n.FreeBandwidth, reservedFor(n, a), ahead(v, a))
	}
	return fmt.Sprintf("waits for %s on node %s, which has %d free%s%s",
		cores(a.CoresMin), n.Name, n.Available(), reservedFor(n, a), ahead(v, a))
}

// besides names what an action needs of its node beside GPUs.
func besides(a *state.Action) string {
	out := cores(a.CoresMin)
	if b := a.Bandwidth(); b > 0 {
		out += fmt.Sprintf(", %d bit/s", b)
	}
	if memory := place.Reserves(a); memory > 0 {
		out += fmt.Sprintf(" and %d bytes of memory", memory)
	}
	return out
}

func explainGPUs(v *state.State, a *state.Action, pool *state.Pool) string {
	d := a.GPUs()
	what := fmt.Sprintf("a chunk of %d GPUs", d.Degrees[0])
	if d.Degrees[0] == 1 {
		what = "1 GPU"
	}
	what = fmt.Sprintf("waits for %s of class %s", what, v.GPUClass(d.Class).Name)
	q := state.QueueOfGPUs(a.Pool, d.Class) // even if it waits aside
	out := outOfUse(v, q)
	usable, fleet := false, newGPUFleet(v, q)
	others := 0
	for i := range fleet.nodes {
		if fleet.nodes[i].row.ReservedFor != 0 {
			others++
		}
	}
	v.NodesByFreeGPUs(q, func(*state.Node) bool { usable = true; return false })
	switch {
	case !usable:
		return fmt.Sprintf("%s: pool %q has no node with them that is up and not draining%s", what, pool.Name, out)
	case a.ReservedOn != 0:
		n := v.Node(a.ReservedOn)
		return fmt.Sprintf("%s on node %s, which is reserved for it and has %d GPUs and %s free", what, n.Name, n.GPUs.Free.Len(), cores(uint32(n.Available()))) + out
	}
	free := gpuView{fleet: fleet, open: true}.Free()
	if _, _, ok := free.Take(levelOf(d.Degrees[0])); ok && fleet.hasFor(a) {
		return what + ": starting it now would delay older actions, which gain more from the GPUs" + ahead(v, a)
	} else if ok {
		return fmt.Sprintf("%s with %s free on the same node%s", what, besides(a), ahead(v, a))
	}
	what = fmt.Sprintf("%s; free are %d chunks of 8, %d of 4, %d of 2 and %d of 1", what, free[3], free[2], free[1], free[0])
	if others > 0 {
		what += fmt.Sprintf(", and those of %s for older actions", reservedNodes(others))
	}
	return what + out + ahead(v, a)
}

// outOfUse says which GPUs are out of use of the usable nodes of a queue, starting with a
// semicolon; empty if there are none. It looks at no more nodes than the scheduler does.
func outOfUse(v *state.State, q state.Queue) (text string) {
	seen, said, more := 0, 0, 0
	v.NodesByFreeGPUs(q, func(n *state.Node) bool {
		switch out := n.OutOfUseText(n.OutOfUse()); {
		case out == "":
		case said == outShown:
			more++
		default:
			text, said = text+"; "+out, said+1
		}
		seen++
		return seen < outSeen
	})
	if more > 0 {
		text += fmt.Sprintf("; and GPUs of %d more nodes", more)
	}
	return text
}

func explainFree(v *state.State, a *state.Action, pool *state.Pool) string {
	most := mostFree(v, a)
	switch {
	case !most.usable:
		return noNode(pool)
	case a.ReservedOn != 0:
		n := v.Node(a.ReservedOn)
		return fmt.Sprintf("waits for %s on node %s, which is reserved for it and has %s free",
			besides(a), n.Name, freeOf(n.Available(), n.FreeMemory, n.FreeBandwidth, a))
	case most.cores < int(a.CoresMin):
		return fmt.Sprintf("waits for %s on one node of pool %q, where the most free are %d%s",
			cores(a.CoresMin), pool.Name, most.cores, ahead(v, a))
	case most.memory < place.Reserves(a) || most.bandwidth < a.Bandwidth() || most.reserved == 0:
		return fmt.Sprintf("waits for a node of pool %q with %s free together: those with the cores have %s at most%s",
			pool.Name, besides(a), freeOf(most.cores, most.memory, most.bandwidth, a), ahead(v, a))
	}
	return fmt.Sprintf("waits for %s on one node of pool %q: what is free is on %s for older actions%s",
		besides(a), pool.Name, reservedNodes(most.reserved), ahead(v, a))
}

func noNode(pool *state.Pool) string {
	return fmt.Sprintf("waits for a node: pool %q has none that is up and not draining", pool.Name)
}

// reservedNodes is "1 node that is reserved".
func reservedNodes(n int) string {
	if n == 1 {
		return "1 node that is reserved"
	}
	return fmt.Sprintf("%d nodes that are reserved", n)
}

// freeMost is what is free of a pool's nodes: the most of each resource, not all of
// the same node.
type freeMost struct {
	usable bool
	cores  int
	// Of the nodes with the cores that an action asks for.
	memory, bandwidth uint64
	reserved          int // how many have all that it asks for, and are reserved for others
}

// mostFree looks at no more nodes than the scheduler does.
func mostFree(v *state.State, a *state.Action) (most freeMost) {
	left := elsewhereMax
	v.NodesByFreeCores(a.Pool, func(n *state.Node) bool {
		most.usable, most.cores = true, max(most.cores, n.Available())
		if n.Available() < int(a.CoresMin) {
			return false
		}
		most.memory, most.bandwidth = max(most.memory, n.FreeMemory), max(most.bandwidth, n.FreeBandwidth)
		if n.KeptFrom(a.ID) && n.FreeMemory >= place.Reserves(a) && n.FreeBandwidth >= a.Bandwidth() {
			most.reserved++
		}
		left--
		return left > 0
	})
	return most
}

// freeOf names what is free of that which an action asks for.
func freeOf(n int, memory, bandwidth uint64, a *state.Action) string {
	out := cores(uint32(n))
	if a.Bandwidth() > 0 {
		out += fmt.Sprintf(", %d bit/s", bandwidth)
	}
	if place.Reserves(a) > 0 {
		out += fmt.Sprintf(" and %d bytes", memory)
	}
	return out
}

// mostMemory says what the most free memory of a pool's nodes is.
func mostMemory(v *state.State, pool state.PoolID) (text string) {
	v.NodesByFreeMemory(pool, func(n *state.Node) bool {
		text = fmt.Sprintf("; the most free are %d", n.FreeMemory)
		return false
	})
	return text
}

// explainCoreless: one without cores waits for memory, or for a node at all.
func explainCoreless(v *state.State, a *state.Action, pool *state.Pool) string {
	most := mostMemory(v, a.Pool)
	switch n, _ := place.Coreless(v, a); {
	case most == "":
		return noNode(pool)
	case a.ReservedOn != 0:
		n := v.Node(a.ReservedOn)
		return fmt.Sprintf("waits for %d bytes of memory on node %s, which is reserved for it and has %d free", a.Memory, n.Name, n.FreeMemory)
	case n != nil:
		return fmt.Sprintf("waits for its turn: it could start on node %s%s", n.Name, ahead(v, a))
	}
	return fmt.Sprintf("waits for %d bytes of memory on one node of pool %q%s%s", a.Memory, pool.Name, most, ahead(v, a))
}

// explainQuota says what is in use of a quota and when some of it comes back.
func explainQuota(v *state.State, a *state.Action, use state.QuotaUse, now int64) string {
	q := v.Quota(use.Quota)
	units := fmt.Sprintf("%d units", use.Units)
	if use.Units == 1 {
		units = "1 unit"
	}
	switch {
	case q.Halted != "":
		return fmt.Sprintf("waits for an operator: quota %s is halted (%s)", q.Name, q.Halted)
	case use.Units > q.Limit:
		return fmt.Sprintf("waits for %s of quota %s, whose limit was lowered to %d: raise it or cancel the action", units, q.Name, q.Limit)
	}
	if until := q.PausedForAll(); until > now {
		return fmt.Sprintf("waits for %s of quota %s, which is paused for %s: its provider refused calls%s", units, q.Name, inSeconds(until-now), olderBefore(v, a))
	}
	held, windowed, limit := q.Total()
	text := fmt.Sprintf("waits for %s of quota %s: %d of %d are in use", units, q.Name, held+windowed, limit)
	if over := q.Overdrawn(); over > 0 && q.Settled > 0 {
		text += fmt.Sprintf(", which overdraws it by %d: calls used more than they expected to", over)
	}
	if effective := q.AllEffective(); effective < limit {
		text += fmt.Sprintf(", and no more than %d may be, as its provider refused calls", effective)
	}
	if q.Keys > 1 {
		text += fmt.Sprintf(", and of no key more than %d are free", mostUnits(q, use.Units, now))
	}
	text += olderBefore(v, a)
	if due, ok := v.NextReturn(q.ID); ok {
		text += "; the next unit comes back in " + inSeconds(due-now)
	}
	return text
}

// olderBefore says how many older actions wait before it.
func olderBefore(v *state.State, a *state.Action) string {
	switch n := older(v, a); n {
	case 0:
		return ""
	case 1:
		return ", 1 older action waits before it"
	case aheadCounted:
		return fmt.Sprintf(", more than %d older actions wait before it", aheadCounted)
	default:
		return fmt.Sprintf(", %d older actions wait before it", n)
	}
}

// inSeconds is a duration in tenths of a second, rounded up.
func inSeconds(ns int64) string {
	tenths := max(0, ns+99_999_999) / 100_000_000
	return fmt.Sprintf("%d.%d s", tenths/10, tenths%10)
}

// mostUnits is how much the key has free that has the most, for a call that needs some.
func mostUnits(q *state.Quota, units uint32, now int64) (most uint32) {
	for key := range q.Keys {
		most = max(most, q.Free(key, units, now))
	}
	return most
}

func cores(n uint32) string {
	if n == 1 {
		return "1 core"
	}
	return fmt.Sprintf("%d cores", n)
}

func reservedFor(n *state.Node, a *state.Action) string {
	switch {
	case n.ReservedFor == a.ID:
		return " and is reserved for it"
	case !n.KeptFrom(a.ID):
		return ""
	}
	return fmt.Sprintf(" and is reserved for action %d", n.ReservedFor)
}

// older counts the older actions in the same queue, as far as aheadCounted: where namespaces
// compete, those of the same namespace.
func older(v *state.State, a *state.Action) (n int) {
	if v.Shares() {
		v.QueuedOf(a.Queue(), a.Namespace, 0, func(id state.ActionID) bool {
			if id < a.ID {
				n++
			}
			return id < a.ID && n < aheadCounted
		})
		return n
	}
	for _, id := range order.Oldest(v, a.Queue(), 0, aheadCounted) {
		if id < a.ID {
			n++
		}
	}
	return n
}

// ahead says how many older actions are in the same queue, and which namespaces go first.
func ahead(v *state.State, a *state.Action) string {
	older := older(v, a)
	switch older {
	case 0:
		return turnOf(v, a)
	case 1:
		return "; 1 older action is ahead" + turnOf(v, a)
	case aheadCounted:
		return fmt.Sprintf("; more than %d older actions are ahead", aheadCounted) + turnOf(v, a)
	}
	return fmt.Sprintf("; %d older actions are ahead", older) + turnOf(v, a)
}
