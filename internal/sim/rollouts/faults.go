package rollouts

import (
	"slices"

	"rota/internal/sim"
)

// What faults of environments do. Assumptions: RollArt does not say how slow its environments
// become, or when it gives one up.
const (
	slowFactor    = 10
	stopNoticedNS = 120 * second
)

// faulty gives some trajectories environments that fail. One that stops is noticed after a while;
// then the tool calls so far are repeated in another one.
func (s *Setup) faulty(all []Trajectory, step int64) []Trajectory {
	if s.Slow == 0 && s.Stopped == 0 {
		return all
	}
	draws := sim.Draws(s.Seed)
	for i := range all {
		t := &all[i]
		d := draws.Of(drawFault, step<<32|int64(t.Group)<<12|int64(i)%(s.Group+s.Redundant))
		slow, stopped := d.Chance(s.Slow*10_000), d.Chance(s.Stopped*10_000)
		if !slow && !stopped {
			continue
		}
		t.Turns = slices.Clone(t.Turns) // a trace's are shared
		at, before := d.N(int64(len(t.Turns)-1)), int64(0)
		for j := range t.Turns[:len(t.Turns)-1] {
			if slow {
				t.Turns[j].ToolNS *= slowFactor
			}
			own := t.Turns[j].ToolNS
			if stopped && int64(j) == at {
				t.Turns[j].ToolNS += stopNoticedNS + before
			}
			before += own
		}
	}
	return all
}

// complete aborts the trajectories of a group that is complete without them.
func (w *world) complete(group int) {
	w.counted[group]++
	if w.setup.Redundant == 0 || w.counted[group] != w.setup.Group {
		return
	}
	for _, r := range w.runs {
		if r.Group == group && !r.ended {
			w.abort(r)
		}
	}
}

func (w *world) abort(r *run) {
	r.ended, r.aborted = true, true
	w.open--
	w.result.Aborted++
	if w.policy.learns() {
		w.learned.learn(r, true, w.loop.Now())
	}
	if w.plan != nil {
		w.plan.mover.abandon(r)
	}
	if r.tool || r.moving || r.worker < 0 {
		return
	}
	o := w.workers[r.worker]
	if _, ok := o.engine.Cancel(w.loop.Now(), keyOf(r)); ok {
		if _, running := o.engine.Generated(w.loop.Now(), keyOf(r)); !running {
			o.count(-1) // it waited, so there is no event
		}
		o.poke()
	}
}
