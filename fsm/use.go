package fsm

import (
	"rota/fsm/state"
	"rota/sched"
)

// useOf returns a copy of what a namespace has used, to be changed and put back; nil below the
// feature level that counts it.
func (x *execution) useOf(id state.NamespaceID) *state.NamespaceUse {
	if x.s.Meta().Level < sched.LevelResizing {
		return nil
	}
	u := state.NamespaceUse{Namespace: id}
	if old := x.s.Use(id); old != nil {
		u = *old
	}
	return &u
}

// countAttempt counts what an attempt that ends now has held.
func (x *execution) countAttempt(t *state.Attempt) {
	if u := x.useOf(x.s.Action(t.Action).Namespace); u != nil {
		u.AddAttempt(t, x.now())
		x.s.PutUse(u)
	}
}

// countMemory counts what the trajectories of a namespace have reserved until now, before one of
// them begins or ends to.
func (x *execution) countMemory(t *state.Trajectory) {
	if t.Memory == 0 {
		return
	}
	if u := x.useOf(t.Namespace); u != nil {
		u.AddTrajectories(x.s.Opened(t.Namespace).Placed, x.now())
		x.s.PutUse(u)
	}
}

// countEnded counts an action that ends.
func (x *execution) countEnded(a *state.Action) {
	u := x.useOf(a.Namespace)
	if u == nil {
		return
	}
	u.Ended++
	if a.State == state.ActionSucceeded {
		u.Succeeded++
	}
	if a.Result != nil {
		u.CPUUS += uint64(max(0, a.Result.CPUNS)) / 1000
	}
	x.s.PutUse(u)
}
