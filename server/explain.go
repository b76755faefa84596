package server

import (
	"fmt"

	"rota/fsm/state"
	"rota/sched"
	"rota/server/leader"
	"rota/server/rpc"
)

// explainTurn says in one sentence what a turn waits for at a log time, empty if it does
// not wait: for its group, or for the hooks that make the group ready.
func explainTurn(st *state.State, t *state.Turn, now int64) string {
	g := st.NodeGroup(t.Group)
	if t.State != state.TurnHeld || g == nil || !st.SettingUp(t) || g.ContextSwitch == nil {
		return sched.ExplainTurn(st, t)
	}
	for i, h := range g.ContextSwitch.Hooks {
		if i == len(g.ContextSwitch.Runs) {
			return explainUnaccepted(st, g, leader.HookName(st, h))
		}
		run := &g.ContextSwitch.Runs[i]
		if run.State == state.ActionSucceeded {
			continue
		}
		if run.State.Final() {
			break
		}
		a := st.Action(run.Action) // there is one: an invariant of state
		if a.State == state.ActionQueued {
			return fmt.Sprintf("waits for the %s: action %d %s", leader.HookName(st, h), a.ID, sched.Explain(st, a, now))
		}
		return fmt.Sprintf("waits for the %s: action %d runs", leader.HookName(st, h), a.ID)
	}
	return "waits for the end of its hooks to be noted"
}

// explainUnaccepted is for a hook that could not be queued so far.
func explainUnaccepted(st *state.State, g *state.NodeGroup, hook string) string {
	pool := st.PoolByName(g.HookPool)
	usable := false
	if pool != nil {
		st.NodesByFreeCores(pool.ID, func(*state.Node) bool { usable = true; return false })
	}
	if !usable {
		return fmt.Sprintf("waits for the %s: pool %q has no node that is up and not draining", hook, g.HookPool)
	}
	return fmt.Sprintf("waits for the %s, which pool %q has not accepted so far: its queue may be full, or its nodes too small", hook, g.HookPool)
}

// explainSpared says why models stay that might have been evicted for an action.
func explainSpared(st *state.State, a *state.Action, given rpc.GivenGPUs, most int) (out []rpc.SparedModel, more bool) {
	spared, more := sched.ExplainSpared(st, a, sched.Given(given), most)
	for _, m := range spared {
		out = append(out, rpc.SparedModel(m))
	}
	return out, more
}
