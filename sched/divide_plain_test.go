package sched

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/scale"
)

// TestDivisionIsThePlainOne: the division is that of the code before it was made fast, bit
// for bit, where cores are not shared.
func TestDivisionIsThePlainOne(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := randomNode(r)
		if w.Node(1).ShareAfterNS > 0 {
			return
		}
		for range 2 { // as it is, and as it is left
			want := plainDivide(w.State, w.Node(1))
			got := Divide(w.State, w.Node(1))
			if !reflect.DeepEqual(got, want) {
				r.Fatalf("the division is %+v, and was %+v", got, want)
			}
			for _, x := range got.Resizes {
				if err := w.resize(x); err != nil {
					r.Fatal(err)
				}
			}
			m := *w.Meta()
			m.Now += int64(rapid.IntRange(0, 100).Draw(r, "later")) * second
			w.SetMeta(m)
		}
	})
}

// plainDivide divides the cores of a node among the attempts on it that can be resized. They get
// what is free, and keep at least their least degree. The division is that of the greatest
// sum of speed-ups, each with a weight for how little the attempt is expected to have left:
// docs/scheduling.md, "Resizing".
func plainDivide(v *state.State, n *state.Node) Division {
	d := plainDivision{demands: demands{view: v}, node: n, now: v.Meta().Now, worths: make(map[plainWorthOf]scale.Demand)}
	examined := d.collect()
	if len(d.attempts) == 0 {
		return Division{Examined: examined}
	}
	d.arrange()
	return Division{Resizes: d.resizes(), Again: d.again(), Examined: examined}
}

// plainDivision is one look at a node.
type plainDivision struct {
	demands
	node     *state.Node
	now      int64
	attempts []*state.Attempt // that can be resized, by action
	cores    int              // theirs and the free ones
	widths   []int
	narrow   bool                          // one has fewer cores than it could use
	worths   map[plainWorthOf]scale.Demand // for look-up only
}

// collect finds the attempts that can be resized, and returns how many it looked at.
func (d *plainDivision) collect() (examined int) {
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
func (d *plainDivision) arrange() {
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

// plainWorthOf is what the worth of more cores depends on, for most.
type plainWorthOf struct {
	least, most uint32
	serial      scale.Serial
	weight      int64
}

// worth is what more cores are worth to an attempt. What an attempt's class has learned of
// its curve is not used: attempts with few cores are also those that ran for long, which
// makes cores seem to be worth more than they are.
func (d *plainDivision) worth(t *state.Attempt) scale.Demand {
	a := d.view.Action(t.Action)
	curve := scale.Curve(scale.AssumedCurve)
	if p := profileOf(a); p != nil && CurveOf(p) != nil {
		curve = CurveOf(p)
	}
	weight := d.weight(a, t)
	serial, simple := curve.(scale.Serial)
	key := plainWorthOf{a.CoresMin, a.CoresMax, serial, weight}
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
func (d *plainDivision) weight(a *state.Action, t *state.Attempt) int64 {
	if objectiveOf(d.view, a) == state.ObjectiveStep {
		return scale.StepWeight(d.left(a, t))
	}
	return scale.Weight(d.left(a, t))
}

// left is how long an attempt is expected to go on, if it had its least degree. What a
// client says of an action's duration is about that action: what has passed of it is not
// left, and one that is overdue is assumed to need as long again as it is overdue. What a
// class knows is a mean of durations that differ, often by a lot: one that has run for long
// is likely to be one of the long ones. So it is the mean, or the age of one that is older.
func (d *plainDivision) left(a *state.Action, t *state.Attempt) int64 {
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

// resizes turns widths into cores: first those that give some up, then those that get some.
func (d *plainDivision) resizes() (out []Resize) {
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
func (d *plainDivision) again() int64 {
	if !d.narrow || len(d.attempts) < 2 {
		return 0
	}
	youngest := int64(divideAgainNSMax)
	for _, t := range d.attempts {
		youngest = min(youngest, d.now-t.StartedAt)
	}
	return d.now + max(divideAgainNSMin, youngest)
}

// TestDurationIsThatOfTheDemand: how long an action takes with some units is what a demand for
// just those says.
func TestDurationIsThatOfTheDemand(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(1)
		w.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "c", Seen: []state.WidthSeen{{Units: 1, MeanNS: 8 * second, Attempts: 9}, {Units: 4, MeanNS: 3 * second, Attempts: 9}}})
		p := &state.Profile{SingleNS: rapid.Int64Range(0, scale.DurationMax).Draw(r, "ns"), Serial: rapid.Bool().Draw(r, "serial")}
		switch {
		case p.Serial:
			p.SerialPPM = rapid.Int64Range(0, scale.Whole).Draw(r, "ppm")
		case rapid.Bool().Draw(r, "table"):
			p.Points = []state.CurvePoint{{Units: 2, Ratio: 900_000}, {Units: 7, Ratio: rapid.Int64Range(300_000, 1_000_000).Draw(r, "ratio")}}
		}
		a := &state.Action{ID: 1, Class: state.ClassID(rapid.IntRange(0, 1).Draw(r, "class")), Needs: &state.Needs{Profile: p}}
		units := rapid.Int32Range(1, 300).Draw(r, "units")
		dops, err := scale.Range(units, units)
		if err != nil {
			r.Fatal(err)
		}
		d := demands{view: w.State}
		one := demandOf(dops, p, d.seen(a))
		want, wantKnown := one.Duration(units)
		if got, known := d.duration(a, units); got != want || known != wantKnown {
			r.Fatalf("%+v takes %d ns (%v) with %d units, the demand says %d (%v)", p, got, known, units, want, wantKnown)
		}
	})
}
