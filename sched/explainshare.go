package sched

import (
	"fmt"

	"rota/fsm/state"
	"rota/sched/order"
)

// explainLimit says which limit of its namespace an action waits for; empty if it is none.
func explainLimit(v *state.State, a *state.Action) string {
	if a.Queue() == (state.Queue{}) && a.Gang == 0 {
		return ""
	}
	limit := LimitOf(v, a)
	if limit == order.NoLimit {
		return ""
	}
	_, forUnits := a.Missing()
	s, held := v.SettingsOf(a.Namespace), order.HeldFor(v, a)
	if limit != order.MemoryLimit {
		held.Memory = 0 // open trajectories keep nothing else from it
	}
	never := held == state.Held{} // it is alone, and does not start
	what, n := "the action", max(1, a.GangSize)
	if a.Gang != 0 {
		what = "its gang"
	}
	var text string
	switch limit {
	case order.RunningLimit:
		text = fmt.Sprintf("waits for its namespace %s: it runs %d of at most %d actions", v.Namespace(a.Namespace).Name, held.Running, s.RunningMax)
	case order.CoresLimit:
		text = fmt.Sprintf("waits for its namespace %s: it holds %d of at most %d cores, and %s needs %d", v.Namespace(a.Namespace).Name, held.Cores, s.CoresMax, what, n*a.CoresMin)
		if resumed := held.Resuming + held.Limited; resumed > 0 {
			text += fmt.Sprintf("; resumed actions get %s first", cores(uint32(resumed)))
		}
	case order.GPUsLimit:
		text = fmt.Sprintf("waits for its namespace %s: it holds %d of at most %d GPUs, and %s needs %d", v.Namespace(a.Namespace).Name, held.GPUs, s.GPUsMax, what, n*a.GPUs().Degrees[0])
	case order.MemoryLimit:
		text = fmt.Sprintf("waits for its namespace %s: it holds %d of at most %d bytes of memory, with its open trajectories, and %s needs %d", v.Namespace(a.Namespace).Name, held.Memory, s.MemoryMax, what, uint64(n)*a.Memory)
	}
	if n := held.Promised.Running; forUnits && n > 0 {
		text += fmt.Sprintf("; waiting for a node before it: %d", n)
	}
	if never {
		text += ": an operator has to raise the limit, or cancel the action"
	}
	return text + ahead(v, a)
}

// turnOf says which namespaces are served before that of an action, starting with a semicolon;
// empty if it is next.
func turnOf(v *state.State, a *state.Action) string {
	resource := a.Resource()
	if !v.Shares() || resource == (state.Queue{}) {
		return ""
	}
	before, shared := 0, ""
	v.QueueNamespaces(a.Queue(), func(ns state.NamespaceID) bool {
		if ns != a.Namespace {
			shared = "; an estimate of its start assumes the order of submission, and namespaces take turns here"
		}
		if ns != a.Namespace && v.Clocks(resource).Clock(ns).Lead < v.Clocks(resource).Clock(a.Namespace).Lead {
			before++
		}
		return true
	})
	switch before {
	case 0:
		return shared
	case 1:
		return "; 1 other namespace is served first, as it has had less by its weight" + shared
	}
	return fmt.Sprintf("; %d other namespaces are served first, as they have had less by their weights", before) + shared
}
