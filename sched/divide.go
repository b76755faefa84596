package sched

import (
	"rota/fsm/state"
	"rota/sched/place"
	"rota/sched/scale"
)

// Resize gives an attempt that runs other cores. It keeps its anchor. Without an attempt, it changes
// the cores that attempts of the node share.
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
	// Share are attempts that give up their cores before the resizes, and share those of the node.
	Share []*state.Attempt
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
	d := division{demands: demands{view: v}, node: n, now: v.Meta().Now}
	examined := d.collect()
	d.join()
	if len(d.shares) > 0 || d.sharing() > 0 {
		d.arrange()
	}
	return Division{Share: d.joins, Resizes: d.resizes(), Again: d.again(), Examined: examined}
}

// division is one look at a node. It runs for every action that starts or ends on the node:
// rows are looked up once, and space is made once.
type division struct {
	demands
	node    *state.Node
	now     int64
	shares  []share          // of those that can be resized, by action
	cores   int              // theirs, the free ones and those that are shared
	resized int              // how many of them change
	old     []*state.Attempt // those that may share cores
	joins   []*state.Attempt // those that are to, which is not so yet
	shared  int              // how many cores are to be shared
	oldAt   int64            // when the next attempt may share cores; 0: none will
	narrow  bool             // one has fewer cores than it could use
	limited bool             // the limit of its namespace keeps one from more
	took    [tookMax]took
	worths  [worthsMax]worths
}

// share is what an attempt has of a node's cores, and is to have.
type share struct {
	attempt *state.Attempt
	action  *state.Action
	has, to int
}

// collect finds the attempts that can be resized, and returns how many it looked at.
func (d *division) collect() (examined int) {
	d.cores = d.node.Free.Len() + d.node.Shared.Len()
	d.shares = make([]share, 0, min(d.node.Running, scale.CandidatesMax))
	d.view.Attempts(d.node.ID, func(t *state.Attempt) bool {
		examined++
		if at := d.node.ShareAt(t); at > 0 {
			d.ages(t, at)
		}
		if t.Least > 0 && !t.Shares && !t.Stop && t.Ice == state.IceNone {
			has := t.Cores.Len()
			d.shares = append(d.shares, share{attempt: t, action: d.view.Action(t.Action), has: has})
			d.cores += has
		}
		return len(d.shares) < scale.CandidatesMax
	})
	return examined
}

// arrange decides on the widths.
func (d *division) arrange() {
	worth := make([]scale.Demand, len(d.shares))
	for i := range d.shares {
		worth[i] = d.worth(&d.shares[i])
	}
	own := d.cores - d.reserveShared()
	if len(worth) > 0 {
		var arranger scale.Arranger
		arranger.OnLine(own, worth, 1)
		for i := range d.shares {
			s := &d.shares[i]
			s.to = int(arranger.DoP(i))
		}
	}
	d.keepLimits()
	d.share(own)
	for i := range d.shares {
		s := &d.shares[i]
		d.narrow = d.narrow || s.to < int(s.action.CoresMax)
		if s.to != s.has {
			d.resized++
		}
	}
}

// shape is what the worth of more cores depends on, for most, with the weight.
type shape struct {
	least, most uint32 // 0: none
	serial      scale.Serial
}

// worths is what more cores bring to actions of a shape, and what that was worth to the last of them.
type worths struct {
	shape
	gains  scale.Gains
	weight int64 // 0: none
	demand scale.Demand
}

// worthsMax is how many of those are at hand. Most actions of a node are alike, and what is worked out twice
// is the same.
const worthsMax = 64

// worth is what more cores are worth to an attempt. What an attempt's class has learned of
// its curve is not used: attempts with few cores are also those that ran for long, which
// makes cores seem to be worth more than they are.
func (d *division) worth(s *share) scale.Demand {
	a, weight := s.action, d.weight(s)
	serial, simple := serialOf(a)
	if !simple {
		g := gainsBy(a, curveFor(a))
		return weighted(a, &g, weight)
	}
	k := shape{a.CoresMin, a.CoresMax, serial}
	at := &d.worths[(k.least+k.most*5+uint32(k.serial))%worthsMax]
	if at.shape != k {
		*at = worths{shape: k, gains: gainsBy(a, serial)}
	}
	if at.weight != weight {
		at.weight, at.demand = weight, weighted(a, &at.gains, weight)
	}
	return at.demand
}

// serialOf returns the curve of an action that can use all degrees of a range and whose
// curve is Amdahl's, or is not known. There are few of those, so what they want is
// remembered.
func serialOf(a *state.Action) (s scale.Serial, simple bool) {
	p := profileOf(a)
	switch {
	case len(keySet(a)) > 0:
		return 0, false
	case p == nil || !p.Serial && len(p.Points) == 0:
		return scale.AssumedCurve, true
	}
	return scale.Serial(p.SerialPPM), p.Serial
}

// gainsBy is what more cores bring to an action, by a curve.
func gainsBy(a *state.Action, curve scale.Curve) scale.Gains {
	scaled, err := scale.Scaled(DoPSetOf(a), curve, 1<<40)
	state.Assert(err == nil, "the curve of action %d: %v", a.ID, err)
	g, err := scaled.Gains()
	state.Assert(err == nil, "what more cores bring to action %d: %v", a.ID, err)
	return g
}

// weighted is what that is worth to its client.
func weighted(a *state.Action, g *scale.Gains, weight int64) scale.Demand {
	w, err := g.Worth(weight)
	state.Assert(err == nil, "what more cores are worth to action %d: %v", a.ID, err)
	return w
}

// weight is what an attempt's progress is worth to its client.
func (d *division) weight(s *share) int64 {
	if objectiveOf(d.view, s.action) == state.ObjectiveStep {
		return scale.StepWeight(d.left(s))
	}
	return scale.Weight(d.left(s))
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
func (d *division) left(s *share) int64 {
	a, age := s.action, max(1, d.now-s.attempt.StartedAt)
	all, known := d.takes(a, meanWidth(s.attempt, s.has, d.now))
	if !known {
		return max(age, leftNSUnknown)
	}
	left := max(all, age)
	if p := profileOf(a); p != nil && p.SingleNS > 0 {
		left = max(all-age, age-all, all/leftPart)
	}
	least, _ := d.takes(a, int32(a.CoresMin))
	return between(1, scale.DurationMax, state.MulDiv(uint64(least), uint64(left), uint64(all)))
}

// took is what demands.duration said of actions of a class.
type took struct {
	kind  sizedClass
	units int32 // 0: nothing yet
	known bool
	ns    int64
}

// tookMax is how many of those are at hand. Most actions of a node are of few classes.
const tookMax = 64

// takes is demands.duration, which it asks once for most.
func (d *division) takes(a *state.Action, units int32) (int64, bool) {
	if a.Class == 0 || profileOf(a) != nil {
		return d.duration(a, units)
	}
	k := sizedClassOf(a)
	at := &d.took[(uint32(k.class)*8+k.octave*4+uint32(units))%tookMax]
	if at.kind != k || at.units != units {
		at.kind, at.units = k, units
		at.ns, at.known = d.duration(a, units)
	}
	return at.ns, at.known
}

// leftPart is the part of a known duration that is assumed to be left in any case: what is
// known is not exact.
const leftPart = 16

// MeanWidth returns the mean number of cores that an attempt has had until a log time,
// rounded.
func MeanWidth(t *state.Attempt, now int64) int32 { return meanWidth(t, t.Cores.Len(), now) }

// meanWidth is MeanWidth of an attempt that has so many cores.
func meanWidth(t *state.Attempt, has int, now int64) int32 {
	width := uint64(has)
	if age := now - t.StartedAt; t.ResizedAt > 0 && age > 0 {
		width = (t.Used(now) + uint64(age)/2) / uint64(age)
	}
	return int32(max(1, width))
}

// resizes turns widths into cores: first those that give some up, then those that get some.
func (d *division) resizes() []Resize {
	shared := d.sharedChanges()
	if d.resized == 0 && !shared {
		return nil
	}
	free, out := d.node.Free, make([]Resize, 0, d.resized+1)
	for _, t := range d.joins {
		free = free.Union(t.Cores)
	}
	for i := range d.shares {
		s := &d.shares[i]
		if t := s.attempt; s.to < s.has {
			kept := place.Narrowed(d.node.NUMA, t.Cores, int(t.Anchor), s.to)
			free = free.Union(t.Cores.Minus(kept))
			out = append(out, Resize{t, kept})
		}
	}
	if shared {
		cores := d.sharedCores(free)
		free = free.Union(d.node.Shared).Minus(cores)
		out = append(out, Resize{Cores: cores})
	}
	for i := range d.shares {
		s := &d.shares[i]
		if t := s.attempt; s.to > s.has {
			wide := place.Widened(d.node.NUMA, t.Cores, free, int(t.Anchor), s.to-s.has)
			free = free.Minus(wide)
			out = append(out, Resize{t, wide})
		}
	}
	return out
}

// again returns when the division may be another one only because time has passed, or because a
// namespace holds less elsewhere.
func (d *division) again() int64 {
	at, old := d.divideAgain(), d.shareAgain()
	if at == 0 || old != 0 && old < at {
		return old
	}
	return at
}

func (d *division) divideAgain() int64 {
	switch {
	case !d.narrow || len(d.shares) < 2 && !d.limited:
		return 0
	case len(d.shares) < 2: // all such nodes together
		return (d.now/divideAgainNSMax + 1) * divideAgainNSMax
	}
	youngest := int64(divideAgainNSMax)
	for i := range d.shares {
		youngest = min(youngest, d.now-d.shares[i].attempt.StartedAt)
	}
	return d.now + max(divideAgainNSMin, youngest)
}

// reclaim takes so many cores from attempts of a node for one that starts: each from the
// one that has the most to spare then. The division that follows makes it good. It returns
// how many attempts it looked at.
func reclaim(v *state.State, n *state.Node, cores int) (out []Resize, freed state.CoreSet, examined int) {
	spare := make([]int, 0, n.Running+1)
	if more := n.SharedSpare(); more > 0 {
		out, spare = append(out, Resize{}), append(spare, int(more))
	}
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
		switch {
		case t == nil && spare[i] == int(n.SharedSpare()) || t != nil && spare[i] == int(t.Spare()):
			continue
		case t == nil:
			r.Cores = narrowShared(n, state.SharedLeast(n.Sharing)+spare[i])
			freed = freed.Union(n.Shared.Minus(r.Cores))
		default:
			dops := DoPSetOf(v.Action(t.Action))
			r.Cores = place.Narrowed(n.NUMA, t.Cores, int(t.Anchor), dops.AtMost(int(t.Least)+spare[i]))
			freed = freed.Union(t.Cores.Minus(r.Cores))
		}
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
