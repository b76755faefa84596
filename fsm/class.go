package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/scale"
)

// pointsMax bounds how many points a speed-up curve has.
const pointsMax = 64

// profile converts what a client knows of how long an action takes, and refuses
// what cannot be. It need not be of use: an action that is not elastic may have a
// curve.
func profile(p *logv1.Profile) (*state.Profile, *logv1.Result) {
	if p == nil {
		return nil, nil
	}
	out := &state.Profile{SingleNS: p.SingleNs, Serial: p.Serial, SerialPPM: p.SerialPpm}
	if p.SingleNs < 0 || p.SingleNs > scale.DurationMax {
		return nil, refuse(codeInvalidArgument, "INVALID", "the duration of a profile must be between 0 and %d ns, is %d", int64(scale.DurationMax), p.SingleNs)
	}
	if len(p.Points) > pointsMax || p.Serial && len(p.Points) > 0 {
		return nil, refuse(codeInvalidArgument, "INVALID", "a speed-up curve is a serial fraction or 1 to %d points, not both", pointsMax)
	}
	for _, q := range p.Points {
		if q.Units > scale.UnitsMax {
			return nil, refuse(codeInvalidArgument, "INVALID", "the speed-up table has %d units, and may have at most %d", q.Units, scale.UnitsMax)
		}
		out.Points = append(out.Points, state.CurvePoint{Units: q.Units, Ratio: q.RatioPpm})
	}
	if c := sched.CurveOf(out); c != nil {
		if err := c.Check(); err != nil {
			return nil, refuse(codeInvalidArgument, "INVALID", "the profile cannot be: %v", err)
		}
	}
	return out, nil
}

// classify gives new actions their classes. A class comes into being with the
// first action that names it.
func (x *execution) classify(rows []state.Action, actions []*logv1.Action) *logv1.Result {
	var fresh orderedSet[string]
	for i, a := range actions {
		if a.Class != "" && x.s.ClassByName(rows[i].Namespace, a.Class) == nil {
			fresh.add(a.Class)
		}
	}
	if r := x.mayName(rows[0].Namespace, len(fresh.items)); r != nil {
		return r
	}
	for i, a := range actions {
		if a.Class != "" {
			rows[i].Class = x.class(rows[i].Namespace, a.Class)
		}
	}
	return nil
}

// mayName refuses new classes of a namespace when there are too many.
func (x *execution) mayName(ns state.NamespaceID, fresh int) *logv1.Result {
	if fresh == 0 {
		return nil
	}
	all := x.s.ClassCount()
	if all+fresh > state.ClassesMax {
		return refuse(codeResourceExhausted, "TOO_MANY_CLASSES", "%d classes are known, and %d more would be too many (at most %d): name kinds of actions, not single ones, or delete classes with: rota class delete", all, fresh, state.ClassesMax)
	}
	if !x.mayHaveMore(state.ClassesMax, all+fresh-1, func() int { return x.s.ClassesOf(ns) + fresh - 1 }) {
		return refuse(codeResourceExhausted, "TOO_MANY_CLASSES", "namespace %q has %d classes, and with %d more it would have more than are left for other namespaces (%d for all): name kinds of actions, not single ones, or delete classes with: rota class delete",
			x.s.Namespace(ns).Name, x.s.ClassesOf(ns), fresh, state.ClassesMax)
	}
	return nil
}

// class returns a class by its name, a new one if need be.
func (x *execution) class(ns state.NamespaceID, name string) state.ClassID {
	if c := x.s.ClassByName(ns, name); c != nil {
		return c.ID
	}
	m := *x.s.Meta()
	m.LastClass++
	x.s.SetMeta(m)
	x.s.PutClass(&state.Class{ID: m.LastClass, Namespace: ns, Name: name})
	return m.LastClass
}

// learn takes an attempt into what is known of its class. How long it took with its units
// is learned from those that succeeded. How much work there was is learned from all that
// came to their end, with whatever exit code, and from those that others ended.
func (x *execution) learn(a *state.Action, t *state.Attempt, r *state.Result) {
	if a.Class == 0 || r.Reason == state.EndStartFailed || t.Pause != 0 { // a pause tells nothing of its class
		return
	}
	if t.Shares {
		x.learnShared(a, t)
		return
	}
	units := max(1, sched.KeyUnits(t))
	if t.ResizedAt > 0 {
		units = uint32(sched.MeanWidth(t, x.now()))
	}
	took, c := r.ExecNS-x.setUpWithin(a, t), x.s.Class(a.Class)
	learned := c
	work := int64(0)
	if x.s.Meta().Level >= sched.LevelResizing && took > 0 {
		work = sched.Work(a, units, took)
		learned = learned.Lived(work, r.Reason.Natural())
	}
	if r.Reason == state.EndExited && r.ExitCode == 0 {
		learned = learned.Learn(units, took).Sized(a.SizeHint, work)
	}
	if learned != c {
		x.s.PutClass(learned)
		if !sched.WorkKnown(c) && sched.WorkKnown(learned) {
			x.offerGaps()
		}
	}
}

// deleteClass forgets a class that nothing live names.
func (x *execution) deleteClass(c *logv1.DeleteClass) *logv1.Result {
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return r
	}
	class := x.s.ClassByName(ns.ID, c.Name)
	if class == nil {
		return refuse(codeNotFound, "CLASS_NOT_FOUND", "namespace %q has no class %q", ns.Name, c.Name)
	}
	if n := x.s.ClassLive(class.ID); n > 0 {
		return refuse(codeFailedPrecondition, "CLASS_IN_USE", "%d queued or running actions name class %q; delete it when they have ended", n, c.Name)
	}
	x.s.DeleteClass(class.ID)
	return &logv1.Result{Count: 1}
}
