package sched

import (
	"fmt"

	"rota/fsm/state"
)

// explainCores says why a running action has as many cores as it has; empty if it cannot
// use any other number.
func explainCores(v *state.State, a *state.Action) string {
	t := v.Attempt(a.Node, a.ID)
	if text := explainFrozen(v, t); text != "" {
		return text
	}
	if t != nil && t.Shares {
		return explainShared(v.Node(t.Node), t)
	}
	if t == nil || a.CoresMin == a.CoresMax || a.GPUs() != nil {
		return ""
	}
	n, has := v.Node(t.Node), fmt.Sprintf("%d of at most %d", t.Cores.Len(), a.CoresMax)
	switch {
	case a.Fixed:
		return has + ": it keeps the cores that it started with, as it asked for"
	case t.Least == 0:
		return fmt.Sprintf("%s: it keeps the cores that it started with, as node %s cannot change those of what runs", has, n.Name)
	case t.Stop:
		return has + ": it is being ended"
	}
	d := division{demands: demands{view: v}, node: n, now: v.Meta().Now}
	d.collect()
	if len(d.shares) == 1 {
		return fmt.Sprintf("%s: nothing else on node %s competes for %s", has, n.Name, cores(uint32(d.cores)))
	}
	return fmt.Sprintf("%s: node %s divides %s among %d actions%s, and %s", has, n.Name, cores(uint32(d.cores)), len(d.shares), aim(v, a), d.known(a, t))
}

// aim says what an action's share is for, if not for the mean.
func aim(v *state.State, a *state.Action) string {
	if objectiveOf(v, a) == state.ObjectiveStep {
		return " so that the last of the step ends soon"
	}
	return ""
}

// known says what the share of an action goes by.
func (d *division) known(a *state.Action, t *state.Attempt) string {
	all, known := d.duration(a, MeanWidth(t, d.now))
	age, takes := (d.now-t.StartedAt)/1_000_000, all/1_000_000
	switch p := profileOf(a); {
	case !known:
		return fmt.Sprintf("nothing is known of how long it takes, but that it has run for %d ms", age)
	case p != nil && p.SingleNS > 0:
		return fmt.Sprintf("its client expects it to take %d ms with as many as it has had, and %d ms have passed", takes, age)
	}
	class := "its class takes"
	if a.SizeHint > 0 {
		class = "actions of its class and size take"
	}
	return fmt.Sprintf("%s %d ms on average with as many as it has had, and %d ms have passed", class, takes, age)
}
