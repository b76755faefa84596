package model

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Hooks: what runs at a context switch (docs/ledger.md). While it does nobody
// uses the group, and it is given to nobody else.

const (
	hookBytesMax = 64 << 10
	failureMax   = 1024
)

// soundHooks: each deployment is named once, and all hooks together are small.
func soundHooks(all []*logv1.DeploymentHooks) bool {
	bytes, seen := 0, map[string]bool{}
	for _, h := range all {
		if h.Deployment == "" || len(h.Deployment) > nameBytesMax || seen[h.Deployment] {
			return false
		}
		seen[h.Deployment] = true
		for _, a := range []*logv1.Action{h.Sleep, h.Wake, h.Prefetch} {
			bytes += a.SizeVT()
		}
	}
	return len(all) <= jobDeploymentsMax && bytes <= hookBytesMax
}

// declared are the deployments that a job has from the beginning.
func declared(all []*logv1.DeploymentHooks) (rows []state.Deployment) {
	for _, h := range all {
		d := state.Deployment{Name: h.Deployment}
		for a, row := range map[*logv1.Action]*[]byte{h.Sleep: &d.Sleep, h.Wake: &d.Wake, h.Prefetch: &d.Prefetch} {
			if a != nil {
				*row, _ = a.MarshalVT()
			}
		}
		rows = append(rows, d)
	}
	return rows
}

func (m *Model) deploymentOf(id state.DeploymentID) (*job, *state.Deployment) {
	owner, i := id.Job()
	j := m.jobByID[owner]
	if j == nil || i < 0 || i >= len(j.Deployments) {
		return nil, &state.Deployment{}
	}
	return j, &j.Deployments[i]
}

// sleeper is who has to be put to sleep once it was on a group; 0: nobody.
func (m *Model) sleeper(id state.DeploymentID) state.DeploymentID {
	if _, d := m.deploymentOf(id); len(d.Sleep) == 0 {
		return 0
	}
	return id
}

// changeHands: another deployment comes. Who was woken before is put to sleep, and then
// the new one is woken.
func (m *Model) changeHands(g *nodeGroup, t *turn) {
	var hooks []state.Hook
	if j, d := m.deploymentOf(g.Awake); len(d.Sleep) > 0 && g.Awake != t.Deployment {
		hooks = append(hooks, state.Hook{Namespace: j.Namespace, Deployment: g.Awake, Action: d.Sleep})
	}
	if _, d := m.deploymentOf(t.Deployment); len(d.Wake) > 0 {
		hooks = append(hooks, state.Hook{Namespace: t.job.Namespace, Deployment: t.Deployment, Action: d.Wake, Wakes: true})
	}
	if hooks == nil {
		g.Awake = m.sleeper(t.Deployment)
		return
	}
	g.ContextSwitch = &state.ContextSwitch{Token: t.Token, To: t.Deployment, Hooks: hooks, Began: m.now}
}

func (t *turn) settingUp(g *nodeGroup) bool {
	return t.held() && g.ContextSwitch != nil && g.ContextSwitch.Token == t.Token
}

func (m *Model) endContextSwitch(c *logv1.EndContextSwitch, got *logv1.Result) error {
	g := m.nodeGroup(state.GroupID(c.GroupId))
	if g == nil || g.ContextSwitch == nil || g.ContextSwitch.Token != c.Token {
		return refused(got, "CONTEXT_SWITCH_OVER")
	}
	w := g.ContextSwitch
	if int(c.Failed) > len(w.Hooks) || len(c.Message) > failureMax {
		return refused(got, "INVALID")
	}
	g.ContextSwitch = nil
	if c.Failed != 0 && !w.Hooks[c.Failed-1].Wakes {
		g.Halted = c.Message
	} else {
		g.Awake = m.sleeper(w.To)
	}
	if t := g.turn; t != nil {
		if err := m.setUp(t, c); err != nil {
			return err
		}
	}
	return result(got, &logv1.Result{Count: 1})
}

// submitHook: the hooks of a grant are queued one after the other, each once, as long as
// none fails.
func (m *Model) submitHook(c *logv1.SubmitHook, got *logv1.Result) error {
	g := m.nodeGroup(state.GroupID(c.GroupId))
	if g == nil || g.ContextSwitch == nil || g.ContextSwitch.Token != c.Token {
		return refused(got, "CONTEXT_SWITCH_OVER")
	}
	w, n := g.ContextSwitch, int(c.Number)
	if n >= 1 && n <= len(w.Runs) {
		return result(got, &logv1.Result{FirstId: uint64(w.Runs[n-1].Action), Count: 1, Replayed: true})
	}
	if n == 0 || n > len(w.Hooks) || n > len(w.Runs)+1 || n > 1 && w.Runs[n-2].State != state.ActionSucceeded {
		return refused(got, "INVALID")
	}
	hook := w.Hooks[n-1]
	name := ""
	for known, id := range m.namespaces {
		if id == hook.Namespace {
			name = known
		}
	}
	if name == "" {
		return refused(got, "NAMESPACE_NOT_FOUND")
	}
	a := &logv1.Action{}
	if a.UnmarshalVT(hook.Action) != nil {
		return refused(got, "INVALID")
	}
	a.Pool = g.HookPool
	if err := m.submit(&logv1.SubmitActions{Namespace: name, Actions: []*logv1.Action{a}}, got); err != nil || got.Refusal != nil {
		return err
	}
	w.Runs = append(w.Runs, state.HookRun{Action: state.ActionID(got.FirstId)})
	return nil
}

// hookOver notes the end of an action with the group whose hook it was, if with any.
func (m *Model) hookOver(a *action) {
	for _, g := range m.groups {
		if g.ContextSwitch == nil {
			continue
		}
		for i := range g.ContextSwitch.Runs {
			if run := &g.ContextSwitch.Runs[i]; run.Action == a.ID {
				run.State = a.State
				if a.Result != nil {
					run.Reason, run.ExitCode = a.Result.Reason, a.Result.ExitCode
				}
			}
		}
	}
}

// setUp is what becomes of the turn that a group was made ready for.
func (m *Model) setUp(t *turn, c *logv1.EndContextSwitch) error {
	if c.Failed == 0 {
		t.ReadyAt = m.now
		return m.tellTurn(t)
	}
	t.Message = c.Message
	m.freeGroup(t, &logv1.EndTurn{Reason: turnCanceled})
	m.endTurnAs(t, state.TurnCanceled)
	if err := m.tellTurn(t); err != nil {
		return err
	}
	return m.forgetDeleted(t.job)
}

func sameContextSwitch(a, b *state.ContextSwitch) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Token == b.Token && a.To == b.To && a.Began == b.Began && slices.Equal(a.Runs, b.Runs) && slices.EqualFunc(a.Hooks, b.Hooks, func(x, y state.Hook) bool {
		return fmt.Sprint(x) == fmt.Sprint(y)
	})
}
