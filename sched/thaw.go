package sched

import (
	"fmt"

	"rota/fsm/state"
	"rota/sched/place"
)

// Thawing is what an attempt that waits to go on after a pause can have now.
type Thawing struct {
	// Resizes are the attempts that give up cores for it, first.
	Resizes []Resize
	// Cores that it is to have beside those that it has; none: none are free.
	Cores state.CoreSet
	// Examined is how many attempts were looked at.
	Examined int
}

// Thaw returns what an attempt that was resumed can have of its node's cores now: as many as it
// lacks, of those that are free and those that others can spare. It may be fewer; it keeps them
// until it has enough.
func Thaw(v *state.State, n *state.Node, t *state.Attempt) Thawing {
	var out Thawing
	free, lacks := n.Free, int(t.Width)-t.Cores.Len()
	if more := min(lacks-free.Len(), int(n.Spare)); more > 0 {
		var freed state.CoreSet
		out.Resizes, freed, out.Examined = reclaim(v, n, more)
		free = free.Union(freed)
	}
	out.Cores = place.Cores(n.NUMA, free, lacks)
	return out
}

// MayThaw reports whether the namespace of a resumed attempt may have its cores again, beside what it
// holds and what it lets go on already. One that alone has more than a limit that was lowered goes on
// when the namespace holds nothing else.
func MayThaw(v *state.State, a *state.Action, t *state.Attempt) bool {
	s := v.SettingsOf(a.Namespace)
	if s.CoresMax == 0 {
		return true // what it holds may take a walk over all nodes
	}
	held := v.HeldBy(a.Namespace)
	others := held.Cores + held.Resuming
	return others == 0 || others+int(t.Width) <= int(s.CoresMax)
}

// paused reports whether an action waits for its trajectory to be resumed.
func paused(v *state.State, a *state.Action) bool {
	t := v.Trajectory(a.Trajectory)
	return t != nil && t.Paused()
}

// explainFrozen says why a running action has no cores; empty if it was not paused.
func explainFrozen(v *state.State, t *state.Attempt) string {
	switch {
	case t == nil:
		return ""
	case t.Ice == state.IceWanted:
		return "is being frozen: its trajectory is paused"
	case t.Ice == state.IceFrozen:
		return "is frozen and holds no cores: its trajectory is paused; see: rota trajectory resume"
	case t.Ice == state.IceLimited:
		ns := v.Action(t.Action).Namespace
		return fmt.Sprintf("waits for its namespace %s to go on after the pause of its trajectory: it holds %d of at most %d cores, and the action needs %d; it comes before all actions of its namespace that are queued",
			v.Namespace(ns).Name, v.HeldBy(ns).Cores, v.SettingsOf(ns).CoresMax, t.Width)
	case t.Ice == state.IceThawing:
		return "waits for " + cores(t.Width) + " of its node to go on with after the pause of its trajectory; it comes before all actions that are queued"
	}
	return ""
}
