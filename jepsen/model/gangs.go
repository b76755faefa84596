package model

import (
	"fmt"
	"maps"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Gangs: actions of one submission that start all in one entry or not at all, and of which none
// goes on when another did not succeed.

const gangSizeMax = 256

// gangs are what the model knows of gangs beside the rows of their members.
type gangs struct {
	// ended are the first actions of gangs of which a member did not succeed, until all others
	// were told.
	ended map[state.ActionID]bool
	// seen: there was one. Where namespaces take turns, their order is not judged then: a gang
	// that starts moves the clocks in the middle of an entry.
	seen bool
}

// joinsGang refuses what cannot be a gang: i is the first action of a submission's gang. It
// returns how many actions belong to it.
func (m *Model) joinsGang(v *verdict, all []*logv1.Action, i int) int {
	first, size := all[i], int(all[i].GangSize)
	if size == 0 {
		v.refuse(first.GangSpread, "INVALID")
		return 1
	}
	m.gangs.seen = true
	if size > gangSizeMax || size > len(all)-i {
		v.refuse(true, "INVALID")
		return 1
	}
	for _, a := range all[i : i+size] {
		alike := a.GangSize == first.GangSize && a.GangSpread == first.GangSpread && orDefault(a.Pool) == orDefault(first.Pool) &&
			a.CoresMin == first.CoresMin && a.MemoryBytes == first.MemoryBytes && a.Needs.GetBandwidthBps() == first.Needs.GetBandwidthBps()
		plain := a.TrajectoryId == 0 && a.CoresMin == a.CoresMax && a.AttemptsMax == 1 && len(a.Needs.GetQuotas()) == 0
		v.refuse(!alike || !plain || !m.sameChunk(a, first), "INVALID")
	}
	if p := m.pools[orDefault(first.Pool)]; p != nil && len(v.must) == 0 {
		row := state.Action{CoresMin: first.CoresMin, Memory: first.MemoryBytes, Needs: m.needsOf(p, first.Needs), GangSize: first.GangSize, GangSpread: first.GangSpread}
		v.refuse(len(p.nodes) > 0 && roomInAll(&row, p.nodes) < size, "UNSATISFIABLE")
	}
	return size
}

// sameChunk: both ask for the same one chunk of GPUs, or for none.
func (m *Model) sameChunk(a, b *logv1.Action) bool {
	x, y := a.Needs.GetGpus(), b.Needs.GetGpus()
	if x == nil || y == nil {
		return x == y
	}
	p := m.pools[orDefault(a.Pool)]
	if p == nil || len(x.Degrees) != 1 || len(y.Degrees) != 1 {
		return false
	}
	c, _ := m.classFor(p, x.Class)
	d, _ := m.classFor(p, y.Class)
	return c == d && x.Degrees[0] == y.Degrees[0] && x.MemoryBytes == y.MemoryBytes
}

// formGangs gives new actions, by their IDs, their gangs.
func formGangs(all []*action, submitted []*logv1.Action) {
	for i := 0; i < len(all); {
		size := int(submitted[i].GangSize)
		for _, a := range all[i : i+size] {
			a.Gang, a.GangSize, a.GangSpread = all[i].ID, uint32(size), submitted[i].GangSpread
		}
		i += max(1, size)
	}
}

// gangOf returns the members of a gang that are kept, by rank.
func (m *Model) gangOf(first state.ActionID, size uint32) (members []*action) {
	for id := first; id < first+state.ActionID(size); id++ {
		if a := m.actions[id]; a != nil {
			members = append(members, a)
		}
	}
	return members
}

// divides is how often a part is in a whole; a part of 0 bounds nothing.
func divides(part, whole uint64) uint64 {
	if part == 0 {
		return gangSizeMax
	}
	return whole / part
}

// roomFor is how many members of a gang fit into what there is.
func roomFor(a *state.Action, cores int, memory, bandwidth uint64, chunks int) int {
	room := min(divides(uint64(a.CoresMin), uint64(max(0, cores))), divides(a.Memory, memory), divides(a.Bandwidth(), bandwidth), uint64(a.GangSize))
	if a.GPUs() != nil {
		room = min(room, uint64(chunks))
	}
	if a.GangSpread {
		room = min(room, 1)
	}
	return int(room)
}

// chunksOf counts the aligned chunks of some GPUs.
func chunksOf(units, count uint32, gpus state.GPUSet) (n int) {
	for first := uint32(0); first+units <= count; first += units {
		if c := (state.Chunk{First: first, Units: units}).GPUs(); gpus&c == c {
			n++
		}
	}
	return n
}

// roomInAll is how many members some nodes could hold if nothing else was there.
func roomInAll(a *state.Action, nodes []*node) (room int) {
	for _, n := range nodes {
		chunks := 0
		if d := a.GPUs(); d != nil && len(d.Degrees) > 0 {
			chunks = int(n.GPUs.Count / d.Degrees[0])
		}
		if n.couldHold(a) {
			room += roomFor(a, n.Cores().Len(), n.Memory, n.Bandwidth, chunks)
		}
	}
	return room
}

// gangServable: the usable nodes of its pool could ever hold a gang.
func (m *Model) gangServable(a *action) bool {
	var usable []*node
	for _, n := range a.pool.nodes {
		if n.usable() {
			usable = append(usable, n)
		}
	}
	return roomInAll(&a.Action, usable) >= int(a.GangSize)
}

// gangRoom is how many members of a gang have room on a node: now, or when all that runs there has
// ended.
func (m *Model) gangRoom(a *action, n *node, later bool) int {
	cores, memory, bandwidth, gpus := n.available(), n.FreeMemory, n.FreeBandwidth, n.GPUs.Free
	if later {
		cores, bandwidth, gpus = n.Cores().Len(), n.Bandwidth, state.AllGPUs(n.GPUs.Count)&^n.out()
		for _, r := range n.running {
			memory += r.reserved
		}
	}
	chunks := 0
	if d := a.GPUs(); d != nil && n.GPUs.Class == d.Class && n.footprint(a) <= n.GPUs.Memory {
		held := m.groupGPUs(n)
		if row := m.s.NodeByName(n.Name); row != nil && !later {
			held &= m.s.GroupGPUs(row) // a group that has got a spare in this entry has left its GPUs by now
		}
		chunks = chunksOf(d.Degrees[0], n.GPUs.Count, gpus&^held)
	}
	return roomFor(&a.Action, cores, memory, bandwidth, chunks)
}

// grantGang judges the start of a gang: all of its members, by rank, one after the other.
func (m *Model) grantGang(first *action) error {
	members := m.gangOf(first.Gang, first.GangSize)
	if first.ID != first.Gang || len(members) != int(first.GangSize) {
		return fmt.Errorf("action %d was granted before the first of its gang %d", first.ID, first.Gang)
	}
	var nodes []*node
	var passed []bypass
	for _, a := range members {
		e, ok := m.peek()
		if !ok || e.Kind != state.EventAction || e.Subject != uint64(a.ID) || state.ActionState(e.State) != state.ActionRunning {
			return fmt.Errorf("gang %d started without its action %d", first.Gang, a.ID)
		}
		if a.State != state.ActionQueued {
			return fmt.Errorf("action %d of gang %d was granted, which is not queued", a.ID, a.Gang)
		}
		n, at, err := m.granted(a, e)
		if err != nil {
			return err
		}
		if !slices.Contains(nodes, n) {
			if nodes = append(nodes, n); m.gangRoom(a, n, false) < 1 {
				return fmt.Errorf("action %d of gang %d was granted on node %s, where there is no room for it", a.ID, a.Gang, n.Name)
			}
			passed = m.passedOn(n, first, passed)
		} else if a.GangSpread {
			return fmt.Errorf("action %d of gang %d was granted on node %s, where another one is", a.ID, a.Gang, n.Name)
		}
		if a == first {
			if err := m.gangTurn(first, n); err != nil {
				return err
			}
		}
		if err := m.takes(a, n, at); err != nil {
			return err
		}
	}
	for _, b := range passed {
		if err := m.pass(b.older, first, b.node); err != nil {
			return err
		}
	}
	return nil
}

// gangTurn: an older gang that asks for no more of nodes without GPUs goes first. The start counts
// as a bypass of the oldest that waits.
func (m *Model) gangTurn(first *action, n *node) error {
	var oldest *action
	unsure := false // who was the oldest is not told
	for _, older := range first.pool.gangs.waiting {
		if older.ID >= first.ID {
			break
		}
		unsure = unsure || m.released(older) || m.cameBack(older) || m.wentAside(older)
		if m.aside(older) || older.ReservedOn != 0 || m.limited(older.Namespace) {
			continue
		}
		if oldest == nil && !unsure {
			oldest = older
		}
		apart := older.GangSpread && !first.GangSpread || m.sharing() // a node may be kept from one of them alone
		if older.GPUs() == nil && first.GPUs() == nil && !apart && older.GangSize <= first.GangSize && older.CoresMin <= first.CoresMin &&
			older.Memory <= first.Memory && older.Bandwidth() <= first.Bandwidth() {
			return fmt.Errorf("gang %d was granted before gang %d, which is older and asks for no more", first.ID, older.ID)
		}
	}
	if oldest == nil {
		return nil
	}
	return m.pass(oldest, first, n)
}

// wentAside: it has waited aside since some moment of this entry, which is not told.
func (m *Model) wentAside(a *action) bool { return !a.Aside && m.staysAside(a) }

// bypass is an older action that a gang passes by, with the node for which it waits.
type bypass struct {
	older *action
	node  *node
}

// passedOn adds whom a gang passes by on a node of which it has taken nothing yet, if that is nobody
// whom it passes by elsewhere. One that still fits there and waits for more cores is not passed by,
// though it may not fit any more when the gang has started: it could have started before.
func (m *Model) passedOn(n *node, first *action, passed []bypass) []bypass {
	older := m.waitsForNode(n)
	if older == nil || older.ID > first.ID || slices.ContainsFunc(passed, func(b bypass) bool { return b.older == older }) {
		return passed
	}
	return append(passed, bypass{older, n})
}

// passGang counts the start of a younger action on a node before a gang that could do with it.
func (m *Model) passGang(a *action, n *node) error {
	for _, g := range n.pool.gangs.waiting {
		if g.ID > a.ID || m.released(g) || m.cameBack(g) || m.wentAside(g) {
			return nil // or who was the oldest is not told
		}
		if !g.Aside && g.ReservedOn == 0 && n.couldHold(&g.Action) {
			return m.pass(g, a, n)
		}
	}
	return nil
}

// gangCouldReserve returns a node that should have been reserved for a gang with others: they have
// room for it when what runs there has ended, and were reserved for nobody all the while.
func (m *Model) gangCouldReserve(a *action) (some *node) {
	room := 0
	for _, n := range a.pool.nodes {
		if !n.usable() || n.ReservedFor != 0 || n.served || m.reservedFor(n) != 0 {
			continue
		}
		if r := m.gangRoom(a, n, true); r > 0 {
			room, some = room+r, n
		}
	}
	if room < int(a.GangSize) {
		return nil
	}
	return some
}

// takenByGang: in this entry an older gang had a node reserved on which an action could run, which may
// have been reserved for the action until then. Its patience starts again.
func (m *Model) takenByGang(a *action) bool {
	for _, n := range a.pool.nodes {
		id := m.reservedFor(n)
		if g := m.actions[id]; id != n.ReservedFor && g != nil && g.Gang != 0 && g.Gang < a.ID && n.couldHold(&a.Action) {
			return true
		}
	}
	return false
}

// gangForgotten returns a gang that should have started.
func (m *Model) gangForgotten(p *pool) *action {
	for _, g := range m.inLine(p.gangs.waiting, window) {
		if m.limited(g.Namespace) {
			continue
		}
		room := 0
		for _, n := range p.nodes {
			if n.usable() && (n.ReservedFor == 0 || n.ReservedFor >= g.ID && (!m.sharing() || n.ReservedFor < g.ID+state.ActionID(g.GangSize))) {
				room += m.gangRoom(g, n, false)
			}
		}
		if room >= int(g.GangSize) {
			return g
		}
	}
	return nil
}

// gangCause is the member of an ended gang that did not succeed first.
func (m *Model) gangCause(first state.ActionID) (cause *action) {
	for _, a := range m.gangOf(first, gangSizeMax) {
		if a.Gang == first && a.State.Final() && a.State != state.ActionSucceeded && a.GangEndedBy == 0 && (cause == nil || a.Revision < cause.Revision) {
			cause = a
		}
	}
	return cause
}

// memberEnded notes that a gang is to be ended.
func (m *Model) memberEnded(a *action) {
	if a.Gang == 0 || a.State == state.ActionSucceeded || a.GangEndedBy != 0 {
		return
	}
	if m.gangs.ended == nil {
		m.gangs.ended = make(map[state.ActionID]bool)
	}
	m.gangs.ended[a.Gang] = true
}

// endWithGang judges the end of a queued member of a gang of which another did not succeed.
func (m *Model) endWithGang(e state.Event) error {
	a := m.actions[state.ActionID(e.Subject)]
	if a == nil || a.State != state.ActionQueued || a.Gang == 0 || !m.gangs.ended[a.Gang] {
		return fmt.Errorf("action %d ended, which is not queued in a gang that is being ended", e.Subject)
	}
	cause := m.gangCause(a.Gang)
	a.GangEndedBy = cause.ID
	if cause.Result.Reason == state.EndQueueTimeout {
		return m.emit(a, m.end(a, state.ActionExpired, &state.Result{Reason: state.EndQueueTimeout}))
	}
	return m.emit(a, m.end(a, state.ActionCanceled, &state.Result{Reason: state.EndGangEnded, Message: gangWords(a)}))
}

// gangWords are those in which a member says for whom it was ended.
func gangWords(a *action) string {
	return fmt.Sprintf("action %d of its gang did not succeed", a.GangEndedBy)
}

// learnGangStops takes over that the running members of ended gangs were told to stop, which no
// event says. That may take several entries.
func (m *Model) learnGangStops() error {
	for _, first := range slices.Sorted(maps.Keys(m.gangs.ended)) {
		cause := m.gangCause(first)
		if cause == nil {
			delete(m.gangs.ended, first)
			continue
		}
		all := !m.s.WorkLeft(state.QueueOf(state.GangTeardown, first)) && !cause.pool.halted
		for _, a := range m.gangOf(first, cause.GangSize) {
			if a.State == state.ActionQueued && all {
				return fmt.Errorf("action %d waits, and action %d of its gang has ended", a.ID, cause.ID)
			}
			if a.State == state.ActionRunning && a.CancelReason == 0 && (all || m.s.Action(a.ID).CancelReason == state.EndGangEnded) {
				a.CancelReason, a.GangEndedBy = state.EndGangEnded, cause.ID
				m.touchAction(a)
			}
		}
		if all {
			delete(m.gangs.ended, first)
		}
	}
	return nil
}
