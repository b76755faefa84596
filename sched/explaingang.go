package sched

import (
	"fmt"

	"rota/fsm/state"
)

// explainGang says what a queued action waits for with its gang.
func explainGang(v *state.State, a *state.Action, pool *state.Pool) string {
	first := v.Action(a.Gang)
	if first == nil || v.QueuedGang(first) == nil {
		return fmt.Sprintf("waits to be ended with its gang %d: another action of it did not succeed", a.Gang)
	}
	if v.UsableNodes(a.Pool) == 0 {
		return noNode(pool)
	}
	size := int(first.GangSize)
	if most, _, _ := GangHolds(v, first, true); most < size {
		return fmt.Sprintf("waits for nodes: its gang needs %s, and the nodes of pool %q that are up and not draining have room for %d",
			gangNeeds(v, first), pool.Name, most)
	}
	room, free := newGangSearch(v, first).free(), "none is free"
	switch room {
	case 0:
	case 1:
		free = "1 is free"
	default:
		free = fmt.Sprintf("%d are free", room)
	}
	text := fmt.Sprintf("waits for its gang: it needs %s at once, and %s", gangNeeds(v, first), free)
	if room >= size {
		text = "waits for its turn: its gang could start"
	}
	switch n := reservedForGang(v, first); n {
	case 0:
	case 1:
		text += "; 1 node is reserved for it"
	default:
		text += fmt.Sprintf("; %d nodes are reserved for it", n)
	}
	return text + aheadOfGang(v, first)
}

// gangNeeds names what a gang needs at once.
func gangNeeds(v *state.State, first *state.Action) string {
	what := fmt.Sprintf("%d places", first.GangSize)
	if g := first.GPUs(); g != nil {
		what = fmt.Sprintf("%d chunks of %d GPUs of class %s", first.GangSize, g.Degrees[0], v.GPUClass(g.Class).Name)
	}
	if first.GangSpread {
		what += " on nodes of their own"
	}
	if first.CoresMin == 0 && first.Memory == 0 && first.Bandwidth() == 0 {
		return what
	}
	return what + " with " + besides(first) + " each"
}

// free is for how many members of the gang there is room now, at most all, on as many nodes as are
// looked at.
func (s *gangSearch) free() (room int) {
	size := int(s.first.GangSize)
	s.choose(func(n *state.Node) (int, bool) {
		r, more := s.now(n)
		room = min(size, room+r)
		return r, more && room < size && s.steps < outSeen
	})
	return room
}

func reservedForGang(v *state.State, first *state.Action) (n int) {
	if first.ReservedOn == 0 {
		return 0
	}
	v.GangMembers(first.ID, func(a *state.Action) bool {
		if a.ReservedOn != 0 {
			n++
		}
		return true
	})
	return n
}

// aheadOfGang says how many older gangs wait in the same pool.
func aheadOfGang(v *state.State, first *state.Action) string {
	switch n := older(v, first); n {
	case 0:
		return ""
	case 1:
		return "; 1 older gang is ahead"
	default:
		return fmt.Sprintf("; %d older gangs are ahead", n)
	}
}
