package sched

import (
	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/scale"
)

// Resize gives an attempt that runs other cores. It keeps its anchor.
type Resize struct {
	Attempt *state.Attempt
	Cores   state.CoreSet
}

const (
	// divideEveryNS is the least time between two divisions of a node: each costs its
	// agent a write for each attempt that is resized.
	divideEveryNS = 50_000_000
	// With time, more is known of what an action has left. So a node is divided again when
	// the youngest of its attempts is as old again, but not sooner or later than this.
	divideAgainNSMin, divideAgainNSMax = 100_000_000, 10_000_000_000
	// leftNSUnknown is what an attempt is assumed to have left of which nothing is known, at
	// first; later it is as long as it has run.
	leftNSUnknown = 10_000_000_000
)

// DivideAt returns the log time from which on a node may be divided.
func DivideAt(n *state.Node) int64 { return n.DividedAt + divideEveryNS }

// Division is what is to be done about the cores of a node.
type Division struct {
	// Resizes come in the order in which they can be done: those that shrink first.
	Resizes []Resize
	// Again is a log time at which the node is to be divided again, if nothing happens
	// before; 0: not for the sake of time.
	Again int64
	// Examined is how many attempts were looked at.
	Examined int
}

// Divide divides the cores of a node among the attempts on it that can be resized. They get
// what is free, and keep at least their least degree. The division is that of the greatest
// sum of speed-ups, each with a weight for how little the attempt is expected to have left:
// docs/scheduling.md, "Resizing".
func Divide(v *state.State, n *state.Node) Division {
	d := division{demands: demands{view: v}, node: n, now: v.Meta().Now, worths: make(map[worthOf]scale.Demand)}
	examined := d.collect()
	if len(d.attempts) == 0 {
		return Division{Examined: examined}
	}
	d.arrange()
	return Division{Resizes: d.resizes(), Again: d.again(), Examined: examined}
}

// division is one look at a node.
type division struct {
	demands
	node     *state.Node
	now      int64
	attempts []*state.Attempt // that can be resized, by action
	cores    int              // theirs and the free ones
	widths   []int
	narrow   bool                     // one has fewer cores than it could use
	worths   map[worthOf]scale.Demand // for look-up only
}

// collect finds the attempts that can be resized, and returns how many it looked at.
func (d *division) collect() (examined int) {
	d.cores = d.node.Free.Len()
	d.view.Attempts(d.node.ID, func(t *state.Attempt) bool {
		examined++
		if t.Least > 0 && !t.Stop {
			d.attempts = append(d.attempts, t)
			d.cores += t.Cores.Len()
		}
		return len(d.attempts) < scale.CandidatesMax
	})
	return examined
}

// arrange decides on the widths.
func (d *division) arrange() {
	worth := make([]scale.Demand, len(d.attempts))
	for i, t := range d.attempts {
		worth[i] = d.worth(t)
	}
	var arranger scale.Arranger
	arranger.OnLine(d.cores, worth, 1)
	for i, t := range d.attempts {
		a := d.view.Action(t.Action)
		d.widths = append(d.widths, int(arranger.DoP(i)))
		d.narrow = d.narrow || d.widths[i] < int(a.CoresMax)
	}
}

// worthOf is what the worth of more cores depends on, for most.
type worthOf struct {
	least, most uint32
	serial      scale.Serial
	weight      int64
}

// worth is what more cores are worth to an attempt. What an attempt's class has learned of
// its curve is not used: attempts with few cores are also those that ran for long, which
// makes cores seem to be worth more than they are.
func (d *division) worth(t *state.Attempt) scale.Demand {
	a := d.view.Action(t.Action)
	curve := scale.Curve(scale.AssumedCurve)
	if p := profileOf(a); p != nil && CurveOf(p) != nil {
		curve = CurveOf(p)
	}
	weight := d.weight(a, t)
	serial, simple := curve.(scale.Serial)
	key := worthOf{a.CoresMin, a.CoresMax, serial, weight}
	if simple = simple && len(keySet(a)) == 0; simple {
		if known, ok := d.worths[key]; ok {
			return known
		}
	}
	scaled, err := scale.Scaled(DoPSetOf(a), curve, 1<<40)
	state.Assert(err == nil, "the curve of action %d: %v", a.ID, err)
	w, err := scaled.Worth(weight)
	state.Assert(err == nil, "what more cores are worth to action %d: %v", a.ID, err)
	if simple {
		d.worths[key] = w
	}
	return w
}

// weight is what an attempt's progress is worth to its client.
func (d *division) weight(a *state.Action, t *state.Attempt) int64 {
	if objectiveOf(d.view, a) == state.ObjectiveStep {
		return scale.StepWeight(d.left(a, t))
	}
	return scale.Weight(d.left(a, t))
}

// objectiveOf returns the objective of an action's trajectory.
func objectiveOf(v *state.State, a *state.Action) state.Objective {
	if t := v.Trajectory(a.Trajectory); t != nil {
		return t.Objective
	}
	return state.ObjectiveMean
}

// left is how long an attempt is expected to go on, if it had its least degree. What a
// client says of an action's duration is about that action: what has passed of it is not
// left, and one that is overdue is assumed to need as long again as it is overdue. What a
// class knows is a mean of durations that differ, often by a lot: one that has run for long
// is likely to be one of the long ones. So it is the mean, or the age of one that is older.
func (d *division) left(a *state.Action, t *state.Attempt) int64 {
	age := max(1, d.now-t.StartedAt)
	all, known := d.duration(a, MeanWidth(t, d.now))
	if !known {
		return max(age, leftNSUnknown)
	}
	left := max(all, age)
	if p := profileOf(a); p != nil && p.SingleNS > 0 {
		left = max(all-age, age-all, all/leftPart)
	}
	least, _ := d.duration(a, int32(a.CoresMin))
	return between(1, scale.DurationMax, state.MulDiv(uint64(least), uint64(left), uint64(all)))
}

// leftPart is the part of a known duration that is assumed to be left in any case: what is
// known is not exact.
const leftPart = 16

// MeanWidth returns the mean number of cores that an attempt has had until a log time,
// rounded.
func MeanWidth(t *state.Attempt, now int64) int32 {
	width := uint64(t.Cores.Len())
	if age := now - t.StartedAt; t.ResizedAt > 0 && age > 0 {
		width = (t.Used(now) + uint64(age)/2) / uint64(age)
	}
	return int32(max(1, width))
}

// resizes turns widths into cores: first those that give some up, then those that get some.
func (d *division) resizes() (out []Resize) {
	free := d.node.Free
	for i, t := range d.attempts {
		if d.widths[i] < t.Cores.Len() {
			kept := place.Narrowed(d.node.NUMA, t.Cores, int(t.Anchor), d.widths[i])
			free = free.Union(t.Cores.Minus(kept))
			out = append(out, Resize{t, kept})
		}
	}
	for i, t := range d.attempts {
		if more := d.widths[i] - t.Cores.Len(); more > 0 {
			wide := place.Widened(d.node.NUMA, t.Cores, free, int(t.Anchor), more)
			free = free.Minus(wide)
			out = append(out, Resize{t, wide})
		}
	}
	return out
}

// again returns when the division may be another one only because time has passed.
func (d *division) again() int64 {
	if !d.narrow || len(d.attempts) < 2 {
		return 0
	}
	youngest := int64(divideAgainNSMax)
	for _, t := range d.attempts {
		youngest = min(youngest, d.now-t.StartedAt)
	}
	return d.now + max(divideAgainNSMin, youngest)
}

// reclaim takes so many cores from attempts of a node for one that starts: each from the
// one that has the most to spare then. The division that follows makes it good. It returns
// how many attempts it looked at.
func reclaim(v *state.State, n *state.Node, cores int) (out []Resize, freed state.CoreSet, examined int) {
	spare := make([]int, 0, n.Running)
	v.Attempts(n.ID, func(t *state.Attempt) bool {
		if examined++; t.Spare() > 0 {
			out = append(out, Resize{Attempt: t})
			spare = append(spare, int(t.Spare()))
		}
		return true
	})
	for range cores {
		most := 0
		for i := range spare {
			if spare[i] > spare[most] {
				most = i
			}
		}
		spare[most]--
	}
	kept := out[:0]
	for i, r := range out {
		t := r.Attempt
		if spare[i] == int(t.Spare()) {
			continue
		}
		dops := DoPSetOf(v.Action(t.Action))
		r.Cores = place.Narrowed(n.NUMA, t.Cores, int(t.Anchor), dops.AtMost(int(t.Least)+spare[i]))
		freed = freed.Union(t.Cores.Minus(r.Cores))
		kept = append(kept, r)
	}
	return kept, freed, examined
}

// give picks the cores of an attempt that starts on a node, and says which attempts give
// them up if too few are free.
func (p *Pass) give(n *state.Node, width int) (cores state.CoreSet, from []Resize) {
	free := n.Free
	if lacks := width - free.Len(); lacks > 0 {
		var freed state.CoreSet
		var examined int
		from, freed, examined = reclaim(p.view, n, lacks)
		p.examined += examined
		free = free.Union(freed)
	}
	return place.Cores(n.NUMA, free, width), from
}
