package sched

import (
	"fmt"
	"slices"

	"rota/fsm/state"
	"rota/sched/place"
)

// Shared cores: where others wait for cores, attempts of a node that have run for long share some
// (docs/scheduling.md, "Shared cores").

// A node is looked at again at the latest after these times when attempts on it may share cores and do
// not: when all of its cores are in use, and when not.
const (
	shareFullAgainNS = 1_000_000_000
	shareAgainNSMax  = 10_000_000_000
)

// ages notes an attempt that may share cores from a log time on.
func (d *division) ages(t *state.Attempt, at int64) {
	switch {
	case d.now >= at:
		d.old = append(d.old, t)
	case d.oldAt == 0 || at < d.oldAt:
		d.oldAt = at
	}
}

// sharing is how many attempts are to share cores.
func (d *division) sharing() uint32 { return d.node.Sharing + uint32(len(d.joins)) }

// join has all attempts that have run for long share cores, if another action waits only for cores, and
// if it helps.
func (d *division) join() {
	least := state.SharedLeast(d.node.Sharing)
	if len(d.old) == 0 || state.SharedLeast(d.node.Sharing+uint32(len(d.old))) >= least+len(d.old) || !d.short() {
		return
	}
	d.joins, d.old = d.old, nil
	left := d.joins
	d.shares = slices.DeleteFunc(d.shares, func(s share) bool { // both are in the order of actions
		joins := len(left) > 0 && left[0] == s.attempt
		if joins {
			left = left[1:]
		}
		return joins
	})
}

// short reports whether the first in line for the node, or for its pool, waits only for cores.
func (d *division) short() bool {
	return d.lacksCores(state.QueueOf(state.NodeQueue, d.node.ID)) ||
		d.node.Usable() && d.lacksCores(state.QueueOf(state.PoolQueue, d.node.Pool))
}

func (d *division) lacksCores(q state.Queue) (lacks bool) {
	d.view.Queued(q, 0, func(id state.ActionID) bool {
		a := d.view.Action(id)
		lacks = int(a.CoresMin) > d.node.Available() && place.Reserves(a) <= d.node.FreeMemory && !d.node.KeptFrom(a.ID)
		return false
	})
	return lacks
}

// reserveShared sets aside the cores that are to be shared: each attempt that shares counts as much as
// one in state.SharersPerCore of those that do not, and those keep their least.
func (d *division) reserveShared() int {
	sharing := int(d.sharing())
	if sharing == 0 {
		return 0
	}
	least := 0
	for i := range d.shares {
		least += int(d.shares[i].attempt.Least)
	}
	d.shared = d.cores * sharing / (sharing + state.SharersPerCore*len(d.shares))
	if has := d.node.Shared.Len(); d.similar(has) {
		d.shared = has
	}
	d.shared = max(state.SharedLeast(d.sharing()), min(d.shared, d.cores-least))
	return d.shared
}

// similar reports whether so many shared cores are about as many as there are to be. A change would have
// the agent move each attempt that shares.
func (d *division) similar(cores int) bool {
	return cores*(similarPart-1) <= d.shared*similarPart && d.shared*(similarPart-1) <= cores*similarPart
}

// similarPart: numbers that differ by less than this part are similar.
const similarPart = 8

// share adds what the others leave of their cores to those that are shared.
func (d *division) share(own int) {
	if d.sharing() == 0 {
		return
	}
	for i := range d.shares {
		own -= d.shares[i].to
	}
	d.shared += own
	if has := d.node.Shared.Len(); has >= state.SharedLeast(d.sharing()) && has <= d.shared && d.similar(has) {
		d.shared = has
	}
}

func (d *division) sharedChanges() bool {
	return d.sharing() > 0 && (len(d.joins) > 0 || d.shared != d.node.Shared.Len())
}

// sharedCores picks the cores that are to be shared, of those that are and of those that are free.
func (d *division) sharedCores(free state.CoreSet) state.CoreSet {
	n, has := d.node, d.node.Shared.Len()
	switch {
	case has == 0:
		return place.Cores(n.NUMA, free, d.shared)
	case d.shared <= has:
		return narrowShared(n, d.shared)
	}
	return place.Widened(n.NUMA, n.Shared, free, int(n.SharedAnchor), d.shared-has)
}

// narrowShared picks the shared cores of a node that stay so, if so many do.
func narrowShared(n *state.Node, cores int) state.CoreSet {
	return place.Narrowed(n.NUMA, n.Shared, int(n.SharedAnchor), cores)
}

// shareAgain returns when the node is to be looked at again for the sake of those that may share cores
// then; 0: it need not be.
func (d *division) shareAgain() int64 {
	at := d.oldAt
	if len(d.old) == 0 {
		return at
	}
	again := d.now + shareAgainNSMax
	if d.node.Available() == 0 {
		again = d.now + shareFullAgainNS
	}
	if at == 0 || again < at {
		return again
	}
	return at
}

// explainShared says why a running action has no cores to itself.
func explainShared(n *state.Node, t *state.Attempt) string {
	return fmt.Sprintf("it shares %s of node %s with %d other actions: it had run for %d ms or more when others waited for cores, and goes on so until it ends",
		cores(uint32(n.Shared.Len())), n.Name, n.Sharing-1, (t.ResizedAt-t.StartedAt)/1_000_000)
}
