package dst

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/sim"
	"rota/fsm/state"
)

// Hooks in the simulation take their time and fail now and then. What they run is not
// simulated, only that they run: once for each grant, whoever leads.

const switchPoll = 200 * millisecond

// hooksRun is what the hooks of one grant do.
type hooksRun struct {
	token  uint64
	until  int64 // virtual time
	failed uint32
}

// switching has the hooks run of groups that change hands, and tells when they have
// ended.
func (s *member) switching(life int) {
	if life != s.life {
		return
	}
	var over []*logv1.EndSwitch
	s.rep.View(func(st *state.State) {
		st.NodeGroups(func(g *state.NodeGroup) bool {
			if g.Switch == nil {
				return true
			}
			if run := s.w.hooksOf(g); run.token == g.Switch.Token && run.until <= s.w.loop.Now() {
				over = append(over, &logv1.EndSwitch{GroupId: uint64(g.ID), Token: run.token, Failed: run.failed, Message: "a hook failed"})
			}
			return true
		})
	})
	for _, c := range over {
		s.propose(&logv1.Command{Verb: &logv1.Command_EndSwitch{EndSwitch: c}}, func(*logv1.Result, outcome) {})
	}
	s.proc.After(switchPoll, func() { s.switching(life) })
}

// hooksOf returns the newest hooks of a group. Those of a grant begin once.
func (w *World) hooksOf(g *state.NodeGroup) *hooksRun {
	run := w.hooks[g.ID]
	if run != nil && run.token >= g.Switch.Token { // an outdated server asks
		return run
	}
	if run != nil && run.until > w.loop.Now() {
		w.witness.fail("hooks of group %d run for token %d while those for token %d do", g.ID, g.Switch.Token, run.token)
	}
	if h := w.witness.groups[g.ID]; h != nil {
		w.witness.fail("hooks of group %d run for token %d while turn %d holds it", g.ID, g.Switch.Token, h.turn)
	}
	d := sim.Draws(w.config.seed).Of(luckHooks, int64(g.Switch.Token))
	run = &hooksRun{token: g.Switch.Token, until: w.loop.Now() + d.Skewed(second/10, 10*second)}
	if d.Chance(100_000) {
		run.failed = uint32(d.Between(1, int64(len(g.Switch.Hooks))))
	}
	w.hooks[g.ID] = run
	w.trace("hooks of group %d run for token %d, failing: %d", g.ID, run.token, run.failed)
	return run
}

// drawHooks gives some deployments of a job hooks.
func (t *trainer) drawHooks(d *sim.Draw) {
	if !d.Chance(400_000) {
		return
	}
	for i, name := range []string{"d0", "d1", "d2"}[:d.Between(1, 3)] {
		h := &logv1.DeploymentHooks{Deployment: name}
		for j, hook := range []**logv1.Action{&h.Sleep, &h.Wake, &h.Prefetch} {
			if d.Chance(600_000) {
				*hook = &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, Spec: []byte{byte(i), byte(j)}}
			}
		}
		t.job.Hooks = append(t.job.Hooks, h)
	}
}
