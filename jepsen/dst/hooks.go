package dst

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// Hooks are actions like any other, which agents run, and which fail now and then. The
// witness knows the group that each of them is for: it runs before the group is held,
// once for each grant, whoever leads.

// handover is one change of hands: how many hooks it has, and the actions that run them.
type handover struct {
	hooks int
	runs  []uint64
}

// changesHands notes which groups change hands in a state.
func (w *witness) changesHands(s *state.State) {
	s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.ContextSwitch != nil && w.handovers[g.ContextSwitch.Token] == nil {
			w.handovers[g.ContextSwitch.Token] = &handover{hooks: len(g.ContextSwitch.Hooks)}
		}
		return true
	})
}

// queuedHook notes which group a hook is for.
func (w *witness) queuedHook(c *logv1.SubmitHook, r *logv1.Result) {
	if c != nil && r.GetRefusal() == nil && !r.GetReplayed() {
		w.hookOf[r.GetFirstId()] = state.GroupID(c.GroupId)
		h := w.handovers[c.Token]
		h.runs = append(h.runs, r.GetFirstId())
	}
}

// handedOver: a change of hands has ended. If it went well, each of its hooks has come to
// its end.
func (w *witness) handedOver(c *logv1.EndContextSwitch, r *logv1.Result) {
	if c == nil || r.GetRefusal() != nil || c.Failed > 0 {
		return
	}
	h := w.handovers[c.Token]
	if len(h.runs) != h.hooks {
		w.fail("group %d is ready for token %d after %d of %d hooks", c.GroupId, c.Token, len(h.runs), h.hooks)
	}
	for _, action := range h.runs {
		if !w.done[token{action, 1}] {
			w.fail("group %d is ready for token %d, and nobody has seen its hook %d come to its end", c.GroupId, c.Token, action)
		}
	}
}

// hookBegins: a hook begins to run.
func (w *witness) hookBegins(action uint64) {
	group, is := w.hookOf[action]
	if !is {
		return
	}
	w.hooks++
	if h := w.groups[group]; h != nil {
		w.fail("hook %d of group %d runs while turn %d holds it", action, group, h.turn)
	}
	for other := range w.live {
		if other != action && w.hookOf[other] == group {
			w.fail("hook %d of group %d runs while hook %d does", action, group, other)
		}
	}
}

// noHookOf: no hook of a group runs.
func (w *witness) noHookOf(h *hold) {
	for other := range w.live {
		if g, is := w.hookOf[other]; is && g == h.group {
			w.fail("turn %d holds group %d while its hook %d runs", h.turn, h.group, other)
		}
	}
}

// drawHooks gives some deployments of a job hooks.
func (t *trainer) drawHooks(d *sim.Draw) {
	if !d.Chance(400_000) {
		return
	}
	for _, name := range []string{"d0", "d1", "d2"}[:d.Between(1, 3)] {
		h := &logv1.DeploymentHooks{Deployment: name}
		for _, hook := range []**logv1.Action{&h.Sleep, &h.Wake, &h.Prefetch} {
			if d.Chance(600_000) {
				*hook = &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, Spec: newSpec(d)}
			}
		}
		t.job.Hooks = append(t.job.Hooks, h)
	}
}
