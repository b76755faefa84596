package fsm

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// submitHook queues the next hook of a context switch. A leader may ask
// again, and so may its successor: each hook is queued once, whenever that is.
func (x *execution) submitHook(c *logv1.SubmitHook) *logv1.Result {
	g := x.s.NodeGroup(state.GroupID(c.GroupId))
	if g == nil || g.ContextSwitch == nil || g.ContextSwitch.Token != c.Token {
		return contextSwitchOver(c.GroupId, c.Token)
	}
	n := int(c.Number)
	switch {
	case n > 0 && n <= len(g.ContextSwitch.Runs):
		return &logv1.Result{FirstId: uint64(g.ContextSwitch.Runs[n-1].Action), Count: 1, Replayed: true}
	case n != g.ContextSwitch.NextHook()+1 || n == 0:
		return refuse(codeInvalidArgument, "INVALID", "hook %d of node group %s cannot run now: hooks run one after the other, until one fails", c.Number, g.Name)
	}
	h := &g.ContextSwitch.Hooks[n-1]
	ns := x.s.Namespace(h.Namespace)
	if ns == nil {
		return refuse(codeNotFound, "NAMESPACE_NOT_FOUND", "the namespace of hook %d of node group %s is gone", c.Number, g.Name)
	}
	a := &logv1.Action{}
	if err := a.UnmarshalVT(h.Action); err != nil {
		return refuse(codeInvalidArgument, "INVALID", "hook %d of node group %s cannot be decoded: %v", c.Number, g.Name, err)
	}
	a.Pool = g.HookPool
	r := x.submitActions(&logv1.SubmitActions{Namespace: ns.Name, Actions: []*logv1.Action{a}})
	if r.Refusal == nil {
		x.putRuns(g, append(slices.Clone(g.ContextSwitch.Runs), state.HookRun{Action: state.ActionID(r.FirstId)}))
	}
	return r
}

// hookEnded notes how a hook has ended, if the action runs one.
func (x *execution) hookEnded(a *state.Action) {
	g := x.s.GroupOfHook(a.ID)
	if g == nil {
		return
	}
	runs := slices.Clone(g.ContextSwitch.Runs)
	run := &runs[len(runs)-1]
	run.State = a.State
	if a.Result != nil {
		run.Reason, run.ExitCode = a.Result.Reason, a.Result.ExitCode
	}
	x.putRuns(g, runs)
}

func (x *execution) putRuns(g *state.NodeGroup, runs []state.HookRun) {
	h, w := *g, *g.ContextSwitch
	w.Runs, h.ContextSwitch = runs, &w
	x.s.PutNodeGroup(&h)
}

func contextSwitchOver(group, token uint64) *logv1.Result {
	return refuse(codeFailedPrecondition, "CONTEXT_SWITCH_OVER", "group %d has no context switch with token %d (any more)", group, token)
}
