package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// What is learned of classes of actions, and what of it makes an action elastic.

type (
	className struct {
		namespace state.NamespaceID
		name      string
	}
	// class is what the reports of its actions say.
	class struct {
		className
		id      state.ClassID
		live    int
		widths  map[uint32]*width
		lived   map[int64]*lifetimes // by the least work of their bucket
		sizes   map[uint64]*size     // by the largest power of two in the size hint; 0: all
		touched bool
	}
	// lifetimes count attempts in sixteenths.
	lifetimes struct{ ended, cut uint64 }
	width     struct {
		mean     int64
		attempts uint64
	}
	size struct {
		mean     float64
		attempts uint64
	}
)

// wellKnown: what a client says of how long an action takes can be, and so can
// the numbers of cores that it names.
func wellKnown(a *logv1.Action) bool {
	if len(a.Class) > nameBytesMax || a.Class == "" && a.SizeHint != 0 {
		return false
	}
	if set := a.Needs.GetCores(); len(set) > 0 {
		if len(set) > allowedCoresMax || set[0] == 0 || set[0] != a.CoresMin || set[len(set)-1] != a.CoresMax || !slices.IsSorted(set) || len(slices.Compact(slices.Clone(set))) != len(set) {
			return false
		}
	}
	p := a.Needs.GetProfile()
	if p == nil {
		return true
	}
	if p.SingleNs < 0 || p.SingleNs > execMax || len(p.Points) > pointsMax || p.Serial && (len(p.Points) > 0 || p.SerialPpm < 0 || p.SerialPpm > 1_000_000) {
		return false
	}
	return risesOnly(p.Points)
}

// risesOnly: with more units it is never slower, and never more than so many
// times as fast.
func risesOnly(points []*logv1.Point) bool {
	units, speed := uint32(0), int64(1_000_000)
	for _, p := range points {
		if p.Units <= units || p.Units > unitsMax || p.RatioPpm < 1 || p.RatioPpm > 1_000_000 || p.Units == 1 && p.RatioPpm != 1_000_000 || int64(p.Units)*p.RatioPpm < speed {
			return false
		}
		units, speed = p.Units, int64(p.Units)*p.RatioPpm
	}
	return true
}

// newClasses is how many classes there would be with those that a submission
// names, and how many of its namespace; 0 if it names no new one.
func (m *Model) newClasses(ns state.NamespaceID, actions []*logv1.Action) (all, own int) {
	fresh := make(map[string]bool)
	for _, a := range actions {
		if a.Class != "" && m.classes[className{ns, a.Class}] == nil {
			fresh[a.Class] = true
		}
	}
	if len(fresh) == 0 {
		return 0, 0
	}
	for k := range m.classes {
		own += oneIf(k.namespace == ns)
	}
	return len(m.classes) + len(fresh), own + len(fresh)
}

// join makes an action one of a class.
func (m *Model) join(a *action, name string) {
	if name == "" {
		return
	}
	k := className{a.Namespace, name}
	c := m.classes[k]
	if c == nil {
		m.lastClass++
		c = &class{className: k, id: m.lastClass, widths: make(map[uint32]*width), lived: make(map[int64]*lifetimes), sizes: make(map[uint64]*size)}
		m.classes[k] = c
	}
	c.live++
	a.class, a.Class = c, c.id
	m.touchClass(c)
}

func (m *Model) touchClass(c *class) {
	if !c.touched {
		c.touched = true
		m.touchedClasses = append(m.touchedClasses, c)
	}
}

// learn takes over how long an attempt took that succeeded, but for the set-up
// of its model, with so many GPUs or, without, cores.
func (m *Model) learn(a *action, r *logv1.AttemptReport) {
	if a.pause != 0 { // what it took tells nothing
		return
	}
	if a.shares { // it takes at least what it had of cores
		if a.class != nil && state.EndReason(r.Reason) != state.EndStartFailed {
			m.touchClass(a.class)
			m.lives(a, state.EndTimeout, int64(a.usedUntil(m.now)))
		}
		return
	}
	took := r.ExecNs - m.setUpInside(a)
	m.lives(a, state.EndReason(r.Reason), took)
	good := state.EndReason(r.Reason) == state.EndExited && r.ExitCode == 0 && took > 0 && took <= execMax
	if a.class == nil || !good {
		return
	}
	m.touchClass(a.class)
	m.sizes(a, took)
	units := a.meanWidth(m.now)
	if w := a.class.widths[units]; w != nil {
		w.attempts++
		w.mean += (took - w.mean) / int64(min(w.attempts, classMemory))
		return
	}
	if len(a.class.widths) == widthsMax {
		least := uint32(0)
		for u, w := range a.class.widths {
			if l := a.class.widths[least]; l == nil || w.attempts < l.attempts || w.attempts == l.attempts && u < least {
				least = u
			}
		}
		delete(a.class.widths, least)
	}
	a.class.widths[units] = &width{took, 1}
}

// lives takes over how much work an attempt had: whole if it came to its end.
func (m *Model) lives(a *action, reason state.EndReason, took int64) {
	if a.class == nil || m.level < levelResizing || took <= 0 || took > execMax {
		return
	}
	ended := false
	switch reason {
	case state.EndExited, state.EndSignaled, state.EndOutOfMemory:
		ended = true
	case state.EndTimeout, state.EndCanceled, state.EndTrajectoryEnded, state.EndNodeLost, state.EndSupervisorLost:
	default:
		return
	}
	work := math.Ceil(float64(took) * a.speed(float64(a.meanWidth(m.now))))
	least := octavePart(int64(min(work, execMax)))
	l := a.class.lived[least]
	if l == nil {
		l = &lifetimes{}
		a.class.lived[least] = l
	}
	if ended {
		l.ended += 16
	} else {
		l.cut += 16
	}
	a.class.fade()
	m.touchClass(a.class)
}

// sizes takes over how much work there was in an attempt that succeeded, by its size.
func (m *Model) sizes(a *action, took int64) {
	if m.level < levelResizing || a.SizeHint == 0 && len(a.class.sizes) == 0 {
		return
	}
	of := []uint64{0}
	if a.SizeHint != 0 {
		power := uint64(1) << 63
		for power > a.SizeHint {
			power /= 2
		}
		of = append(of, power)
	}
	work := min(float64(took)*a.speed(float64(a.meanWidth(m.now))), execMax)
	for _, k := range of {
		z := a.class.sizes[k]
		if z == nil {
			z = &size{}
			a.class.sizes[k] = z
		}
		z.attempts++
		z.mean += (work - z.mean) / float64(min(z.attempts, classMemory))
	}
}

// octavePart rounds down to three binary digits.
func octavePart(n int64) int64 {
	step := int64(1)
	for n/step >= 8 {
		step *= 2
	}
	return n / step * step
}

// fade halves what was seen if that were more than 512 attempts.
func (c *class) fade() {
	sum := uint64(0)
	for _, l := range c.lived {
		sum += l.ended + l.cut
	}
	if sum <= 512*16 {
		return
	}
	for least, l := range c.lived {
		l.ended, l.cut = l.ended/2, l.cut/2
		if l.ended == 0 && l.cut == 0 {
			delete(c.lived, least)
		}
	}
}

// speed is how many times as fast an action is with so many units: as its client says, or
// with a twentieth of it serial.
func (a *action) speed(units float64) float64 {
	serial := 0.05
	if a.Needs != nil && a.Needs.Profile != nil {
		p := a.Needs.Profile
		if p.Serial {
			serial = float64(p.SerialPPM) / 1e6
		} else if len(p.Points) > 0 {
			return speedAt(p.Points, units)
		}
	}
	return units / (1 + serial*(units-1))
}

// speedAt is on the lines from point to point, and stays after the last.
func speedAt(points []state.CurvePoint, units float64) float64 {
	x, y := 1.0, 1.0
	for _, p := range points {
		px := float64(p.Units)
		py := px * float64(p.Ratio) / 1e6
		if px >= units {
			if px == x {
				return py
			}
			return y + (py-y)*(units-x)/(px-x)
		}
		x, y = px, py
	}
	return y
}

func (m *Model) deleteClass(c *logv1.DeleteClass, got *logv1.Result) error {
	ns := m.namespaces[orDefault(c.Namespace)]
	k := className{ns, c.Name}
	var v verdict
	v.refuse(ns == 0, "NAMESPACE_NOT_FOUND")
	v.refuse(ns != 0 && m.classes[k] == nil, "CLASS_NOT_FOUND")
	v.refuse(m.classes[k] != nil && m.classes[k].live > 0, "CLASS_IN_USE")
	if ok, err := v.judge(got); !ok {
		return err
	}
	if m.s.Class(m.classes[k].id) != nil {
		return fmt.Errorf("class %s was deleted and is there", c.Name)
	}
	delete(m.classes, k)
	return result(got, &logv1.Result{Count: 1})
}

// compareClasses: classes are what the reports say.
func (m *Model) compareClasses(classes []*class) error {
	for _, c := range classes {
		c.touched = false
		if m.classes[c.className] != c {
			continue // deleted in this entry
		}
		got := m.s.ClassByName(c.namespace, c.name)
		if got == nil || got.ID != c.id || m.s.ClassLive(c.id) != c.live || len(got.Seen) != len(c.widths) {
			return fmt.Errorf("class %s is %+v, must be %d with %d live actions and %d widths", c.name, got, c.id, c.live, len(c.widths))
		}
		for _, w := range got.Seen {
			if want := c.widths[w.Units]; want == nil || want.mean != w.MeanNS || want.attempts != w.Attempts {
				return fmt.Errorf("class %s has seen %d attempts of %d ns with %d cores, must be %+v", c.name, w.Attempts, w.MeanNS, w.Units, want)
			}
		}
		if err := errors.Join(c.compareLifetimes(got.Lifetimes), c.compareSizes(got.Sizes)); err != nil {
			return err
		}
	}
	return nil
}

func (c *class) compareLifetimes(got state.Lifetimes) error {
	if len(got) != len(c.lived) {
		return fmt.Errorf("class %s has %d amounts of work, must be %d", c.name, len(got), len(c.lived))
	}
	for _, l := range got {
		least := state.LifetimeLeast(l.Bucket)
		if want := c.lived[least]; want == nil || want.ended != l.Ended || want.cut != l.Cut {
			return fmt.Errorf("class %s has %d and %d sixteenths of attempts with %d ns of work, must be %+v", c.name, l.Ended, l.Cut, least, want)
		}
	}
	return nil
}

// compareSizes: means are of whole nanoseconds, each rounded, so they are about the same.
func (c *class) compareSizes(got []state.SizeSeen) error {
	if len(got) != len(c.sizes) {
		return fmt.Errorf("class %s has learned of %d sizes, must be %d", c.name, len(got), len(c.sizes))
	}
	for _, z := range got {
		size := uint64(0)
		if z.Octave > 0 {
			size = 1 << (z.Octave - 1)
		}
		want := c.sizes[size]
		if want == nil || want.attempts != z.Attempts || math.Abs(want.mean-float64(z.MeanNS)) > 100+want.mean/1000 {
			return fmt.Errorf("class %s has %d attempts of %d ns with size %d, must be %+v", c.name, z.Attempts, z.MeanNS, size, want)
		}
	}
	return nil
}

// compareAllClasses: there are no others.
func (m *Model) compareAllClasses() error {
	if got := m.s.ClassCount(); got != len(m.classes) {
		return fmt.Errorf("there are %d classes, must be %d", got, len(m.classes))
	}
	all := make([]*class, 0, len(m.classes))
	for _, c := range m.classes {
		all = append(all, c)
	}
	return m.compareClasses(all)
}

// atMost is the largest number of cores that an action can use, of so many; 0 if
// they are too few.
func (a *action) atMost(cores int) int {
	best := 0
	if a.Needs == nil || len(a.Needs.Cores) == 0 {
		if cores >= int(a.CoresMin) {
			best = min(cores, int(a.CoresMax))
		}
		return best
	}
	for _, u := range a.Needs.Cores {
		if int(u) <= cores {
			best = int(u)
		}
	}
	return best
}

// isWide: the number of cores is one that the action can use and, where nobody is
// elastic, the most that there are, or half of what its class knows too well.
func (m *Model) isWide(a *action, n *node, got int) error {
	if a.CoresMin == 0 && got == 0 {
		return nil
	}
	free := n.available()
	if n.Resizes {
		return a.isWideWhereItFollows(n, max(free, m.availableByNow(n)), got)
	}
	want := a.atMost(free)
	if c := a.class; c != nil && len(c.widths) == 1 && !a.hasCurve() {
		if w := c.widths[uint32(want)]; w != nil && w.attempts >= exploreAfter && a.atMost(want/2) > 0 {
			want = a.atMost(want / 2)
		}
	}
	switch {
	case want == 0 || got > free || a.atMost(got) != got:
		return fmt.Errorf("action %d was granted %d of %d free cores on node %s, which it cannot use", a.ID, got, free, n.Name)
	case got < want && m.settingsOf(a.Namespace).CoresMax > 0: // no more than its namespace may have
	case got != want && !m.mayBeElastic(a.pool):
		return fmt.Errorf("action %d was granted %d of %d free cores on node %s, must be %d", a.ID, got, free, n.Name, want)
	}
	return nil
}

func (a *action) hasCurve() bool {
	return a.Needs != nil && a.Needs.Profile != nil && (a.Needs.Profile.Serial || len(a.Needs.Profile.Points) > 0)
}

// widthsSeen is with how many widths actions of its class have succeeded.
func (a *action) widthsSeen() int {
	if a.class == nil {
		return 0
	}
	return len(a.class.widths)
}

// timed: something is known of how long the action takes.
func (a *action) timed() bool {
	return a.widthsSeen() > 0 || a.Needs != nil && a.Needs.Profile != nil && a.Needs.Profile.SingleNS > 0
}

// informed: it is known how much faster the action is with more cores.
func (a *action) informed() bool {
	return a.CoresMax > a.CoresMin && (a.widthsSeen() > 1 || a.hasCurve() && a.timed())
}

// mayBeElastic: among those that waited in a pool before this entry's decisions is
// one that is known to be faster with more cores. Otherwise all is as if there
// were no elasticity.
func (m *Model) mayBeElastic(p *pool) bool {
	if slices.ContainsFunc(p.queue.waiting, (*action).informed) {
		return true
	}
	for _, n := range p.nodes {
		if slices.ContainsFunc(n.queue.waiting, (*action).informed) {
			return true
		}
	}
	return slices.ContainsFunc(m.touchedActions, func(a *action) bool {
		return a.pool == p && a.informed() && a.State == state.ActionRunning && a.StartedAt == m.now
	})
}

// choosesToWait: an action that could start on a node waits for more cores. It
// may while something runs there, whose end is its next chance.
func (m *Model) choosesToWait(a *action, n *node) bool {
	if a.neverWaits(n) {
		return false
	}
	runs := len(n.running) > 0
	if a.Trajectory == 0 {
		runs = slices.ContainsFunc(n.pool.nodes, func(o *node) bool { return o.usable() && len(o.running) > 0 })
	}
	if !runs {
		return false
	}
	if m.mayBeElastic(a.pool) {
		if n.chose == nil {
			n.chose = make(map[state.ActionID]bool)
		}
		n.chose[a.ID] = true
	}
	return n.chose[a.ID]
}
