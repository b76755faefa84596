package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Bounds of hooks.
const (
	// hookBytesMax is of all hooks of a job: its row has them.
	hookBytesMax    = 64 << 10
	messageBytesMax = 1024
)

// declareHooks makes the deployments that have hooks.
func (x *execution) declareHooks(j *state.Job, declared []*logv1.DeploymentHooks) *logv1.Result {
	bytes := 0
	for _, c := range declared {
		if c.Deployment == "" || len(c.Deployment) > nameBytesMax {
			return refuse(codeInvalidArgument, "INVALID", "hooks need a deployment with a name of at most %d bytes", nameBytesMax)
		}
		known := len(j.Deployments)
		i := j.Named(c.Deployment)
		if i != known {
			return refuse(codeInvalidArgument, "INVALID", "deployment %q has hooks twice, or is one of more than %d", c.Deployment, state.DeploymentsMax)
		}
		d := &j.Deployments[i]
		for _, h := range []struct {
			action *logv1.Action
			row    *[]byte
		}{{c.Sleep, &d.Sleep}, {c.Wake, &d.Wake}, {c.Prefetch, &d.Prefetch}} {
			if h.action == nil {
				continue
			}
			if r := x.quotasExist(h.action); r != nil {
				return r
			}
			encoded, err := h.action.MarshalVT()
			state.Assert(err == nil, "an action that was decoded cannot be encoded: %v", err)
			*h.row = encoded
			bytes += len(encoded)
		}
	}
	if bytes > hookBytesMax {
		return refuse(codeInvalidArgument, "INVALID", "the hooks of a job must not be above %d bytes together, and are %d: put scripts into files", hookBytesMax, bytes)
	}
	return nil
}

// quotasExist refuses a hook that names a quota that is not there: it would fail only
// when a group is to change hands.
func (x *execution) quotasExist(hook *logv1.Action) *logv1.Result {
	for _, use := range hook.Needs.GetQuotas() {
		if _, r := x.quota(use.Quota); r != nil {
			return r
		}
	}
	return nil
}

// contextSwitch brings a deployment onto a group, by hooks if there are any (PlexRL
// §4.4). The deployment that is awake there is put to sleep before another is woken.
func (x *execution) contextSwitch(g *state.NodeGroup, to state.DeploymentID, token uint64) {
	if g.Resident == to {
		return
	}
	var hooks []state.Hook
	if j, d := x.s.Deployment(g.Awake); d != nil && g.Awake != to && len(d.Sleep) > 0 {
		hooks = append(hooks, state.Hook{Namespace: j.Namespace, Deployment: g.Awake, Action: d.Sleep})
	}
	j, d := x.s.Deployment(to)
	if len(d.Wake) > 0 {
		hooks = append(hooks, state.Hook{Namespace: j.Namespace, Deployment: to, Wakes: true, Action: d.Wake})
	}
	if len(hooks) == 0 {
		g.Awake = x.awake(to)
		return
	}
	g.ContextSwitch = &state.ContextSwitch{Token: token, To: to, Hooks: hooks, Began: x.now()}
}

// awake returns a deployment that was brought onto a group, if it is to be put to sleep
// before another is.
func (x *execution) awake(id state.DeploymentID) state.DeploymentID {
	if _, d := x.s.Deployment(id); d != nil && len(d.Sleep) > 0 {
		return id
	}
	return 0
}

// endContextSwitch ends a context switch. A failed wake hook ends the turn. A failed sleep
// hook also halts the group: the engine may still hold its memory.
func (x *execution) endContextSwitch(c *logv1.EndContextSwitch) *logv1.Result {
	g := x.s.NodeGroup(state.GroupID(c.GroupId))
	switch {
	case g == nil || g.ContextSwitch == nil || g.ContextSwitch.Token != c.Token:
		return contextSwitchOver(c.GroupId, c.Token)
	case int(c.Failed) > len(g.ContextSwitch.Hooks) || len(c.Message) > messageBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the context switch of group %s has %d hooks, and a message at most %d bytes", g.Name, len(g.ContextSwitch.Hooks), messageBytesMax)
	}
	h := *g
	h.ContextSwitch = nil
	if c.Failed > 0 && !g.ContextSwitch.Hooks[c.Failed-1].Wakes {
		h.Halted = c.Message
	} else {
		h.Awake = x.awake(g.ContextSwitch.To)
	}
	x.s.PutNodeGroup(&h)
	x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))
	if t := x.s.Turn(g.Turn); t != nil {
		x.ready(*t, c)
	}
	return &logv1.Result{Count: 1}
}

// ready has the holder of a group begin, or ends its turn if a hook has failed.
func (x *execution) ready(t state.Turn, c *logv1.EndContextSwitch) {
	if c.Failed == 0 {
		t.ReadyAt = x.now()
		x.putTurn(&t)
		return
	}
	t.Message = c.Message
	x.leaveGroup(&t, &logv1.EndTurn{Reason: endCanceled})
	x.overTurn(&t, state.TurnCanceled)
}
