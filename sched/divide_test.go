package sched

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// resizing is a world of one node that resizes, with nothing on it.
func resizing(numa ...int) *world {
	w := newWorld(1)
	n := *w.Node(1)
	n.Resizes, n.NUMA, n.Free = true, nil, state.CoreSet{}
	first := 0
	for _, cores := range numa {
		n.NUMA = append(n.NUMA, state.CoreRange(first, cores))
		n.Free = n.Free.Union(state.CoreRange(first, cores))
		first += cores
	}
	w.PutNode(&n)
	return w
}

// run has an action run on the node with so many of its free cores, since a time.
func (w *world) run(a state.Action, cores int, since int64) state.ActionID {
	id := w.queue(a)
	n, b := *w.Node(1), *w.Action(id)
	t := &state.Attempt{Node: 1, Action: id, Number: 1, Cores: n.Free.First(cores), StartedAt: since}
	if n.Follows(&b) {
		t.Least, t.Anchor = b.CoresMin, t.Cores.Slice()[0]
	}
	n.Free = n.Free.Minus(t.Cores)
	n.Spare += t.Spare()
	n.Running++
	w.PutNode(&n)
	b.State, b.Node, b.Attempt, b.StartedAt = state.ActionRunning, 1, 1, since
	w.PutAction(&b)
	w.PutAttempt(t)
	return id
}

// resize does what the state machine does, and says what is wrong with it.
func (w *world) resize(r Resize) error {
	if r.Attempt == nil {
		return w.resizeShared(r.Cores)
	}
	t, n := *w.Attempt(1, r.Attempt.Action), *w.Node(1)
	a := w.Action(t.Action)
	free := n.Free.Union(t.Cores)
	dops := DoPSetOf(a)
	switch width := r.Cores.Len(); {
	case r.Cores.Minus(free) != state.CoreSet{}:
		return fmt.Errorf("action %d gets cores %v, of which only %v are free", a.ID, r.Cores.Slice(), free.Slice())
	case t.Least == 0:
		return fmt.Errorf("action %d keeps its cores, and gets others", a.ID)
	case dops.AtMost(width) != width:
		return fmt.Errorf("action %d gets %d cores, which it cannot use", a.ID, width)
	case !r.Cores.Has(int(t.Anchor)):
		return fmt.Errorf("action %d loses its anchor %d for %v", a.ID, t.Anchor, r.Cores.Slice())
	}
	n.Free = free.Minus(r.Cores)
	n.Spare -= t.Spare()
	t.CoreNS, t.ResizedAt, t.Cores = t.Used(w.Meta().Now), w.Meta().Now, r.Cores
	n.Spare += t.Spare()
	w.PutNode(&n)
	w.PutAttempt(&t)
	return nil
}

func (w *world) width(id state.ActionID) int { return w.Attempt(1, id).Cores.Len() }

// randomNode draws a node with attempts of every kind.
func randomNode(r *rapid.T) *world {
	n := func(label string, least, most int) int { return rapid.IntRange(least, most).Draw(r, label) }
	w := resizing(n("numa", 1, 12), n("numa", 1, 12))
	w.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "c", Seen: []state.WidthSeen{{Units: 1, MeanNS: 8 * second, Attempts: 9}, {Units: 4, MeanNS: 3 * second, Attempts: 9}}})
	if n("shares", 0, 1) > 0 {
		m := *w.Node(1)
		m.ShareAfterNS = 10 * second
		w.PutNode(&m)
		if n("waits", 0, 1) > 0 {
			w.queue(state.Action{CoresMin: 1 + uint32(n("cores", 0, 4))})
		}
	}
	for range n("attempts", 1, 8) {
		free := w.Node(1).Free.Len()
		if free == 0 {
			break
		}
		a := state.Action{CoresMin: uint32(n("least", 1, min(3, free)))}
		a.CoresMax = a.CoresMin + uint32(n("more", 0, 9))
		a.Fixed = n("fixed", 0, 3) == 0
		a.Class = state.ClassID(n("class", 0, 1))
		width := n("width", int(a.CoresMin), min(free, int(a.CoresMax)))
		switch n("kind", 0, 3) {
		case 0:
			a.Needs = amdahl(1, int64(n("seconds", 1, 100)), int64(n("serial", 0, 10))*100_000).Needs
		case 1:
			a.CoresMin, a.CoresMax, width, a.Needs = 1, 8, 1, &state.Needs{Cores: []uint32{1, 4, 8}}
		}
		id := w.run(a, width, w.Meta().Now-int64(n("age", 0, 100))*second/4)
		if m := *w.Node(1); w.Attempt(1, id).Least == 1 && m.ShareAfterNS > 0 && n("shares already", 0, 4) == 0 {
			w.share(r, []*state.Attempt{w.Attempt(1, id)})
			if m = *w.Node(1); m.Shared == (state.CoreSet{}) {
				m.SetShared(m.Free.First(width), m.Sharing)
				w.PutNode(&m)
			}
		}
	}
	return w
}

// TestDivisionIsSound: whatever runs on a node, each step of a division can be done, gives
// nobody what it cannot use, and once it is done there is nothing more to do.
func TestDivisionIsSound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := randomNode(r)
		d := Divide(w.State, w.Node(1))
		if again := Divide(w.State, w.Node(1)); !reflect.DeepEqual(d, again) {
			r.Fatalf("two divisions of the same node are %+v and %+v", d, again)
		}
		w.share(r, d.Share)
		grown := false
		for _, x := range d.Resizes {
			had := w.Node(1).Shared.Len()
			if x.Attempt != nil {
				had = x.Attempt.Cores.Len()
			}
			if grown && x.Cores.Len() < had {
				r.Fatal("one shrinks after another has grown")
			}
			grown = grown || x.Cores.Len() > had
			if err := w.resize(x); err != nil {
				r.Fatal(err)
			}
		}
		if d := Divide(w.State, w.Node(1)); len(d.Resizes)+len(d.Share) > 0 {
			r.Fatalf("it is divided again at once: %+v", d)
		}
		if n := w.Node(1); n.Shared.Len() < state.SharedLeast(n.Sharing) || (n.Sharing > 0) != (n.Shared.Len() > 0) {
			r.Fatalf("%d share cores %v", n.Sharing, n.Shared.Slice())
		}
		if d.Again != 0 && d.Again < w.Meta().Now+divideAgainNSMin {
			r.Fatalf("it is to be divided again in %d ns", d.Again-w.Meta().Now)
		}
	})
}

// TestReclaimTakesFromThoseWithMost: what a start lacks is taken from the attempts with the
// most to spare, never below their least.
func TestReclaimTakesFromThoseWithMost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := randomNode(r)
		n := w.Node(1)
		if n.Spare == 0 {
			return
		}
		lacks := rapid.IntRange(1, int(n.Spare)).Draw(r, "lacks")
		from, freed, _ := reclaim(w.State, n, lacks)
		if freed.Len() < lacks || freed.Intersect(n.Free) != (state.CoreSet{}) {
			r.Fatalf("%d cores are needed, %v come free beside %v", lacks, freed.Slice(), n.Free.Slice())
		}
		most := uint32(0) // that one has left of those that gave up something
		for _, x := range from {
			if err := w.resize(x); err != nil {
				r.Fatal(err)
			}
			if x.Attempt != nil {
				most = max(most, w.Attempt(1, x.Attempt.Action).Spare())
			} else {
				most = max(most, w.Node(1).SharedSpare())
			}
		}
		w.Attempts(1, func(t *state.Attempt) bool {
			if contiguous := w.Action(t.Action).Needs == nil || len(w.Action(t.Action).Needs.Cores) == 0; contiguous && t.Spare() > most+1 && t.ResizedAt == 0 && len(from) > 0 {
				r.Fatalf("action %d keeps %d cores to spare, others are left with %d at most", t.Action, t.Spare(), most)
			}
			return true
		})
	})
}

func ofStep(a state.Action) state.Action {
	a.Trajectory = 1
	return a
}

func TestDivisionByWhatIsKnown(t *testing.T) {
	unknown := state.Action{CoresMin: 1, CoresMax: 16}
	learned := unknown
	learned.Class = 1
	sets := state.Action{CoresMin: 1, CoresMax: 8, Needs: &state.Needs{Cores: []uint32{1, 2, 4, 8}}}
	wide := unknown
	wide.CoresMin = 6
	type running struct {
		action state.Action
		age    int64 // s
	}
	for _, c := range []struct {
		name string
		runs []running
		want []int
	}{
		{"one alone gets all", []running{{unknown, 1}}, []int{16}},
		{"equals get equal shares", []running{{unknown, 1}, {unknown, 2}, {unknown, 3}, {unknown, 4}}, []int{4, 4, 4, 4}},
		{"what is left over goes to the oldest", []running{{unknown, 1}, {unknown, 1}, {unknown, 1}}, []int{6, 5, 5}},
		{"one keeps its least", []running{{wide, 1}, {unknown, 1}, {unknown, 1}, {unknown, 1}}, []int{6, 4, 3, 3}},
		{"numbers of cores that are allowed", []running{{sets, 1}, {sets, 1}, {sets, 1}}, []int{8, 4, 4}},
		{"more to what ends soon", []running{{amdahl(16, 1000, 50_000), 0}, {amdahl(16, 1, 50_000), 0}}, []int{1, 15}},
		{"none to what gains nothing", []running{{amdahl(16, 1000, 1_000_000), 0}, {amdahl(16, 1, 50_000), 0}}, []int{1, 15}},
		{"less to what has run for long", []running{{unknown, 1000}, {unknown, 1}}, []int{1, 15}},
		{"one of a class that is older than they are", []running{{learned, 800}, {learned, 1}}, []int{1, 15}},
		{"nobody of a class before that", []running{{learned, 6}, {learned, 1}}, []int{8, 8}},
		{"of a step, more to what has longest left", []running{{ofStep(amdahl(16, 1000, 50_000)), 0}, {ofStep(amdahl(16, 1, 50_000)), 0}}, []int{15, 1}},
		{"of a step, more to what has run for long", []running{{ofStep(unknown), 1000}, {ofStep(unknown), 1}}, []int{15, 1}},
		{"what is short, of any objective", []running{{ofStep(amdahl(16, 1, 50_000)), 0}, {amdahl(16, 1, 50_000), 0}}, []int{1, 15}},
		{"what is long, of any objective", []running{{ofStep(amdahl(16, 1000, 50_000)), 0}, {amdahl(16, 1000, 50_000), 0}}, []int{15, 1}},
		{"nobody if nothing is known", []running{{ofStep(unknown), 6}, {unknown, 1}}, []int{8, 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := resizing(16)
			w.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "c", Seen: []state.WidthSeen{{Units: 1, MeanNS: 8 * second, Attempts: 9}}})
			w.PutTrajectory(&state.Trajectory{ID: 1, Namespace: 1, Pool: 1, Node: 1, State: state.TrajectoryOpen, Objective: state.ObjectiveStep})
			for _, x := range c.runs {
				w.run(x.action, int(x.action.CoresMin), w.Meta().Now-x.age*second)
			}
			for _, x := range Divide(w.State, w.Node(1)).Resizes {
				if err := w.resize(x); err != nil {
					t.Fatal(err)
				}
			}
			var got []int
			for i := range c.runs {
				got = append(got, w.width(state.ActionID(i+1)))
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("they get %d cores, want %d", got, c.want)
			}
		})
	}
}

// TestDivisionBySize: of two actions of a class, the one whose size is known to mean less
// work gets more cores; also at sizes that were never seen.
func TestDivisionBySize(t *testing.T) {
	action := func(hint uint64) state.Action {
		return state.Action{CoresMin: 1, CoresMax: 16, Class: 1, SizeHint: hint}
	}
	for _, c := range []struct {
		name         string
		large, small uint64
		equal        bool
	}{
		{"seen", 1000, 10, false},
		{"of the same octave", 1023, 512, true},
		{"never seen, larger", 1 << 40, 1000, false},
		{"never seen, smaller", 10, 1, false},
		{"the largest there is", 1<<64 - 1, 1000, false},
		{"without a hint it counts as average", 1000, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := resizing(16)
			class := &state.Class{ID: 1, Namespace: 1, Name: "c"}
			for range 9 {
				class = class.Learn(1, 10*second).Sized(10, 2*second).Sized(1000, 200*second)
			}
			w.PutClass(class)
			large := w.run(action(c.large), 1, w.Meta().Now)
			small := w.run(action(c.small), 1, w.Meta().Now)
			for _, x := range Divide(w.State, w.Node(1)).Resizes {
				if err := w.resize(x); err != nil {
					t.Fatal(err)
				}
			}
			if l, s := w.width(large), w.width(small); c.equal != (l == s) || l > s {
				t.Errorf("the large one has %d cores, the small one %d", l, s)
			}
		})
	}
}

// TestOverdueIsNotSoonOver: what a client said is not believed any more when it has turned
// out to be wrong.
func TestOverdueIsNotSoonOver(t *testing.T) {
	w := resizing(16)
	overdue := w.run(amdahl(16, 1, 50_000), 1, w.Meta().Now-600*second)
	other := w.run(amdahl(16, 100, 50_000), 1, w.Meta().Now)
	for _, x := range Divide(w.State, w.Node(1)).Resizes {
		if err := w.resize(x); err != nil {
			t.Fatal(err)
		}
	}
	if w.width(overdue) >= w.width(other) {
		t.Errorf("the overdue one has %d cores, the other %d", w.width(overdue), w.width(other))
	}
}

func TestMeanWidth(t *testing.T) {
	at := &state.Attempt{Cores: state.CoreRange(0, 4), StartedAt: 10 * second}
	if got := MeanWidth(at, 20*second); got != 4 {
		t.Errorf("one that was never resized has had %d cores", got)
	}
	at.CoreNS, at.ResizedAt, at.Cores = at.Used(20*second), 20*second, state.CoreRange(0, 1)
	for now, want := range map[int64]int32{20 * second: 4, 30 * second: 3, 40 * second: 2, 1000 * second: 1} {
		if got := MeanWidth(at, now); got != want {
			t.Errorf("at %d s it has had %d cores, want %d", now/second, got, want)
		}
	}
}

// BenchmarkDivide is one division of 256 cores among 128 attempts, beside the code before
// it was made fast.
func BenchmarkDivide(b *testing.B) {
	for _, known := range []string{"nothing", "class", "profile"} {
		b.Run(known, func(b *testing.B) {
			w := resizing(128, 128)
			w.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "c", Seen: []state.WidthSeen{{Units: 1, MeanNS: 8 * second, Attempts: 9}, {Units: 4, MeanNS: 3 * second, Attempts: 9}}})
			for i := range 128 {
				a := state.Action{CoresMin: 1, CoresMax: 32}
				switch known {
				case "class":
					a.Class = 1
				case "profile":
					a = amdahl(32, int64(i+1), 70_000)
				}
				w.run(a, 2, w.Meta().Now-int64(i)*second)
			}
			b.Run("now", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Divide(w.State, w.Node(1))
				}
			})
			b.Run("plain", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					plainDivide(w.State, w.Node(1))
				}
			})
		})
	}
}
