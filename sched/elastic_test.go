package sched

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"rota/fsm/state"
	"rota/sched/scale"
)

const second = 1_000_000_000

// world is a state that is put together by hand.
type world struct {
	*state.State
	last state.ActionID
}

func newWorld(cores ...int) *world {
	w := &world{State: state.New()}
	w.SetMeta(state.Meta{
		ClusterID: "test", Settings: state.Settings{}.WithDefaults(), Now: 1000 * second,
		LastAction: 1 << 30, LastNode: 1 << 20, LastPool: 1, LastNamespace: 1, LastClass: 1 << 20,
	})
	w.PutNamespace(&state.Namespace{ID: 1, Name: "default"})
	w.PutPool(&state.Pool{ID: 1, Name: "default"})
	for i, n := range cores {
		var all state.CoreSet
		for c := range n {
			all.Add(c)
		}
		w.PutNode(&state.Node{
			ID: state.NodeID(i + 1), Name: fmt.Sprintf("n%d", i+1), Pool: 1, State: state.NodeUp,
			NUMA: []state.CoreSet{all}, Free: all, Memory: 1 << 40, FreeMemory: 1 << 40,
		})
	}
	return w
}

// queue adds an action that waits in the pool.
func (w *world) queue(a state.Action) state.ActionID {
	w.last++
	a.ID, a.Namespace, a.Pool, a.State, a.AttemptsMax = w.last, 1, 1, state.ActionQueued, 1
	w.PutAction(&a)
	return a.ID
}

// start does what the state machine does with a decision.
func (w *world) start(d Decision) {
	for _, r := range d.Resize {
		if err := w.resize(r); err != nil {
			panic(err)
		}
	}
	n, a := *w.Node(d.Node.ID), *w.Action(d.Start.ID)
	n.Free = n.Free.Minus(d.Cores)
	n.FreeBandwidth -= a.Bandwidth()
	n.Running++
	t := &state.Attempt{Node: n.ID, Action: a.ID, Number: 1, Cores: d.Cores, StartedAt: w.Meta().Now}
	if n.Resizes && a.Resizable() {
		t.Least, t.Anchor = a.CoresMin, t.Cores.Slice()[0]
	}
	n.Spare += t.Spare()
	w.PutNode(&n)
	a.State, a.Node, a.Attempt, a.StartedAt = state.ActionRunning, n.ID, 1, w.Meta().Now
	w.PutAction(&a)
	w.PutAttempt(t)
}

// widths runs a pass and returns how wide each action starts, by ID; 0 for those
// that wait.
func (w *world) widths(i state.Queue) []int {
	out := make([]int, w.last)
	for p := NewPass(w.State, i); ; {
		d, ok := p.Next()
		if !ok {
			return out
		}
		w.start(d)
		out[d.Start.ID-1] = d.Cores.Len()
	}
}

// amdahl is an action that takes so many seconds with one core.
func amdahl(most uint32, seconds, serialPPM int64) state.Action {
	return state.Action{CoresMin: 1, CoresMax: most, Needs: &state.Needs{
		Profile: &state.Profile{SingleNS: seconds * second, Serial: true, SerialPPM: serialPPM},
	}}
}

func sized(set []uint32, seconds, serialPPM int64) state.Action {
	a := amdahl(set[len(set)-1], seconds, serialPPM)
	a.CoresMin, a.Needs.Cores = set[0], set
	return a
}

// TestDemands: what clients say comes first, and what they leave out is taken from
// the class.
func TestDemands(t *testing.T) {
	seen := []scale.Seen{{Units: 2, NS: 60, Attempts: 9}, {Units: 4, NS: 40, Attempts: 9}}
	half := []state.CurvePoint{{Units: 2, Ratio: 500_000}} // twice as many, and no faster
	for _, c := range []struct {
		name    string
		profile *state.Profile
		seen    []scale.Seen
		ns      [4]int64 // with 1 to 4 units; 0: unknown
		rigid   bool
	}{
		{"nothing", nil, nil, [4]int64{}, true},
		{"a duration", &state.Profile{SingleNS: 100}, nil, [4]int64{100, 100, 100, 100}, true},
		{"a curve alone", &state.Profile{Serial: true}, nil, [4]int64{}, true},
		{"duration and curve", &state.Profile{SingleNS: 120, Serial: true}, nil, [4]int64{120, 60, 40, 30}, false},
		{"duration and points", &state.Profile{SingleNS: 120, Points: half}, seen, [4]int64{120, 120, 120, 120}, false},
		{"a class", nil, seen, [4]int64{120, 60, 50, 40}, false},
		{"a class that saw one width", nil, seen[:1], [4]int64{120, 120, 120, 120}, true},
		{"a duration, and the curve of the class", &state.Profile{SingleNS: 240}, seen, [4]int64{240, 120, 100, 80}, false},
		{"a curve, and the duration of the class", &state.Profile{Serial: true}, seen, [4]int64{120, 60, 40, 30}, false},
		{"a duration, and a class that saw one width", &state.Profile{SingleNS: 100}, seen[:1], [4]int64{100, 100, 100, 100}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dops, err := scale.Range(1, 4)
			if err != nil {
				t.Fatal(err)
			}
			d := demandOf(dops, c.profile, c.seen)
			if d.Rigid() != c.rigid {
				t.Errorf("rigid: %v", d.Rigid())
			}
			for i, want := range c.ns {
				if ns, known := d.Duration(int32(i + 1)); known != (want > 0) || ns < want || ns > want+4 {
					t.Errorf("with %d units it takes %d ns, want %d", i+1, ns, want)
				}
			}
		})
	}
}

// TestWorkedExample is that of docs/scheduling.md.
func TestWorkedExample(t *testing.T) {
	w := newWorld(8)
	w.queue(amdahl(8, 30, 0))
	w.queue(amdahl(8, 8, 0))
	w.queue(amdahl(8, 8, 1_000_000))
	if got := fmt.Sprint(w.widths(state.QueueOf(state.PoolQueue, 1))); got != "[5 2 1]" {
		t.Errorf("widths %s, want [5 2 1]", got)
	}
	w = newWorld(8)
	w.queue(sized([]uint32{1, 7}, 14, 0))
	w.queue(sized([]uint32{1, 7}, 14, 0))
	if got := fmt.Sprint(w.widths(state.QueueOf(state.PoolQueue, 1))); got != "[7 0]" {
		t.Errorf("widths %s, want [7 0]", got)
	}
}

// TestThoseWhoWaitAreOfferedToOtherNodes: who better waits on one node starts on
// another that has room.
func TestThoseWhoWaitAreOfferedToOtherNodes(t *testing.T) {
	w := newWorld(7, 1)
	w.queue(sized([]uint32{1, 7}, 14, 0))
	w.queue(sized([]uint32{1, 7}, 14, 0))
	if got := fmt.Sprint(w.widths(state.QueueOf(state.PoolQueue, 1))); got != "[7 1]" {
		t.Errorf("widths %s, want [7 1]", got)
	}
}

// TestWhoMustStartIsNotEvicted: patience ends.
func TestWhoMustStartIsNotEvicted(t *testing.T) {
	w := newWorld(8)
	w.queue(sized([]uint32{1, 7}, 14, 0))
	a := sized([]uint32{1, 7}, 14, 0)
	a.Bypassed, a.BlockedAt = w.Meta().Settings.BypassMax, w.Meta().Now
	w.queue(a)
	if got := w.widths(state.QueueOf(state.PoolQueue, 1)); got[0] != 7 || got[1] != 1 {
		t.Errorf("widths %v, want [7 1]", got)
	}
}

// TestUnknownTakesWhatIsLeft: what nobody is known to gain from goes to those of
// whom nothing is known.
func TestUnknownTakesWhatIsLeft(t *testing.T) {
	w := newWorld(8)
	w.queue(state.Action{CoresMin: 1, CoresMax: 8})
	w.queue(amdahl(3, 10, 0))
	if got := fmt.Sprint(w.widths(state.QueueOf(state.PoolQueue, 1))); got != "[5 3]" {
		t.Errorf("widths %s, want [5 3]", got)
	}
}

// TestFixedBesideFollowers: where cores are divided, an action of a fixed width that the plan
// leaves out starts before a younger one whose cores follow, unless it may be deferred.
func TestFixedBesideFollowers(t *testing.T) {
	for seed := uint64(7000); seed < 7500; seed++ { // in one of them the plan does so
		w, rng := resizing(8), rand.New(rand.NewPCG(seed, 0))
		m := *w.Meta()
		m.Level = LevelResizing
		w.SetMeta(m)
		w.run(state.Action{CoresMin: 1, CoresMax: 8}, 1+rng.IntN(8), m.Now-second)
		for range 3 + rng.IntN(8) {
			w.queue(randomWidth(rng, m.Now))
		}
		least := ^uint32(0) // that an older action waits for which may not be passed by
		for i, width := range w.widths(state.QueueOf(state.PoolQueue, 1)) {
			if i == 0 { // it ran before
				continue
			}
			switch a := w.Action(state.ActionID(i + 1)); {
			case width == 0 && a.Needs == nil:
				least = min(least, a.CoresMin)
			case width > 0 && a.CoresMin >= least:
				t.Fatalf("seed %d: action %d starts before an older one that asks for no more", seed, a.ID)
			}
		}
	}
}

// randomWidth is an action of any kind that waits since now.
func randomWidth(rng *rand.Rand, now int64) (a state.Action) {
	switch rng.IntN(3) {
	case 0:
		a = sized([]uint32{1, uint32(2 + rng.IntN(6))}, 1+rng.Int64N(40), rng.Int64N(400_000))
		a.Fixed = true
	case 1:
		a = state.Action{CoresMin: 1 + uint32(rng.IntN(3))}
		a.CoresMax = a.CoresMin
	case 2:
		a = state.Action{CoresMin: 1, CoresMax: uint32(1 + rng.IntN(8))}
	}
	a.SubmittedAt = now
	return a
}

// TestBandwidthCounts: the node with the most free cores has no bandwidth left, and
// on the other one there is enough for one action at a time.
func TestBandwidthCounts(t *testing.T) {
	w := newWorld(8, 4)
	n := *w.Node(2)
	n.Bandwidth, n.FreeBandwidth = 150, 150
	w.PutNode(&n)
	for range 2 {
		a := amdahl(4, 10, 0)
		a.Needs.Bandwidth = 100
		w.queue(a)
	}
	if got := fmt.Sprint(w.widths(state.QueueOf(state.PoolQueue, 1))); got != "[4 0]" {
		t.Errorf("widths %s, want [4 0]", got)
	}
}

// TestExploration: a class gets a second width, and one that gains at the end of
// its curve a wider one.
func TestExploration(t *testing.T) {
	for _, c := range []struct {
		seen []state.WidthSeen
		want int
	}{
		{nil, 8},
		{[]state.WidthSeen{{Units: 8, MeanNS: second, Attempts: 2}}, 8},
		{[]state.WidthSeen{{Units: 8, MeanNS: second, Attempts: 3}}, 4},
		{[]state.WidthSeen{{Units: 2, MeanNS: second, Attempts: 9}}, 8},
		{[]state.WidthSeen{{Units: 1, MeanNS: 2 * second, Attempts: 3}, {Units: 2, MeanNS: second, Attempts: 1}}, 4},
		{[]state.WidthSeen{{Units: 1, MeanNS: 2 * second, Attempts: 3}, {Units: 2, MeanNS: 2 * second, Attempts: 1}}, 1},
	} {
		w := newWorld(8)
		w.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "c", Seen: c.seen})
		w.queue(state.Action{CoresMin: 1, CoresMax: 8, Class: 1})
		if got := w.widths(state.QueueOf(state.PoolQueue, 1))[0]; got != c.want {
			t.Errorf("%v: %d cores, want %d", c.seen, got, c.want)
		}
	}
}

// load is a pass of the size that it is designed for.
type load struct {
	name   string
	action func(*world, *rand.Rand) state.Action
}

var loads = []load{
	{"unknown", func(*world, *rand.Rand) state.Action { return state.Action{CoresMin: 1, CoresMax: 2} }},
	{"class-1-to-32", func(w *world, rng *rand.Rand) state.Action {
		return state.Action{CoresMin: 1, CoresMax: 32, Class: w.class(rng)}
	}},
	{"serial-1-to-32", func(_ *world, rng *rand.Rand) state.Action {
		return amdahl(32, 1+rng.Int64N(60), rng.Int64N(400_000))
	}},
	{"serial-1-to-256", func(_ *world, rng *rand.Rand) state.Action {
		return amdahl(256, 1+rng.Int64N(60), rng.Int64N(400_000))
	}},
	{"powers-of-two", func(_ *world, rng *rand.Rand) state.Action {
		return sized([]uint32{1, 2, 4, 8, 16, 32, 64, 128}, 1+rng.Int64N(60), rng.Int64N(400_000))
	}},
	{"class-powers-of-two", func(w *world, rng *rand.Rand) state.Action {
		return state.Action{CoresMin: 1, CoresMax: 128, Class: w.class(rng), Needs: &state.Needs{Cores: []uint32{1, 2, 4, 8, 16, 32, 64, 128}}}
	}},
}

// class makes one up of eight, the first time it is asked for.
func (w *world) class(rng *rand.Rand) state.ClassID {
	id := state.ClassID(1 + rng.IntN(8))
	if w.Class(id) == nil {
		single := second * (1 + rng.Int64N(60))
		c := &state.Class{ID: id, Namespace: 1, Name: fmt.Sprint(id)}
		for _, u := range []uint32{1, 2, 4, 8, 16, 32} {
			c.Seen = append(c.Seen, state.WidthSeen{Units: u, MeanNS: single/20 + single*19/20/int64(u), Attempts: 10})
		}
		w.PutClass(c)
	}
	return id
}

// BenchmarkElasticPass is one pass over a node of 256 cores with 128 candidates and
// 1,000 behind them that do not fit: all that is decided before the first starts.
// Worst is with half of the cores in use by 128 actions, and 1,128 that could take
// the other half.
func BenchmarkElasticPass(b *testing.B) {
	for _, l := range loads {
		for _, worst := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/worst=%v", l.name, worst), func(b *testing.B) {
				w, rng := newWorld(256), rand.New(rand.NewPCG(1, 2))
				if worst {
					w.busy(rng, l)
				}
				for range 128 {
					w.queue(l.action(w, rng))
				}
				for range 1000 {
					a := l.action(w, rng)
					if !worst {
						a.CoresMin, a.CoresMax, a.Needs = 200, 200, nil
					}
					w.queue(a)
				}
				b.ReportAllocs()
				starts := 0
				for b.Loop() {
					p := NewPass(w.State, state.QueueOf(state.NodeQueue, 1))
					if _, ok := p.Next(); !ok {
						b.Fatal("nothing starts")
					}
					starts = len(p.plan.grants) + 1
				}
				b.ReportMetric(float64(starts), "starts")
			})
		}
	}
}

// busy has half of the node in use.
func (w *world) busy(rng *rand.Rand, l load) {
	for range 128 {
		id := w.queue(l.action(w, rng))
		w.start(Decision{Start: w.Action(id), Node: w.Node(1), Cores: w.Node(1).Free.First(1)})
	}
	if n := w.Node(1); n.Free.Len() != 128 {
		panic("not half of it")
	}
}

// BenchmarkSharing is a pass over a pool: 512 actions come to 64 idle nodes.
func BenchmarkSharing(b *testing.B) {
	nodes := make([]int, 64)
	for i := range nodes {
		nodes[i] = 16
	}
	w, rng := newWorld(nodes...), rand.New(rand.NewPCG(1, 2))
	for range 512 {
		w.queue(amdahl(16, 1+rng.Int64N(60), rng.Int64N(400_000)))
	}
	for b.Loop() {
		NewPass(w.State, state.QueueOf(state.PoolQueue, 1)).Next()
	}
}

// running has an action run since a while.
func (w *world) running(a state.Action, cores int, since int64) {
	id := w.queue(a)
	row := *w.Action(id)
	n := *w.Node(1)
	t := &state.Attempt{Node: 1, Action: id, Number: 1, Cores: n.Free.First(cores), StartedAt: w.Meta().Now - since}
	n.Free = n.Free.Minus(t.Cores)
	n.Running++
	row.State, row.Node, row.Attempt, row.StartedAt = state.ActionRunning, 1, 1, t.StartedAt
	w.PutNode(&n)
	w.PutAction(&row)
	w.PutAttempt(t)
}

// TestWaitingForMore: an action that could start is deferred if more cores are
// about to come free, those that do not gain from them start meanwhile and do not
// count as bypassing it, and that for a minute only.
func TestWaitingForMore(t *testing.T) {
	for _, c := range []struct {
		name    string
		ends    int64 // seconds until 7 of 8 cores come free
		waited  int64 // seconds since the action was submitted
		starved bool
		want    string
		counted bool
	}{
		{"soon", 2, 0, false, "[0 0 1]", false},
		{"late", 40, 0, false, "[0 1 0]", false},
		{"soon, and it has waited", 2, 61, false, "[0 0 1]", true},
		{"soon, and it is its turn", 2, 61, true, "[0 0 0]", false},
		{"late, and it is its turn", 40, 61, true, "[0 1 0]", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(8)
			w.running(amdahl(7, 7*(c.ends+5), 0), 7, 5*second)
			a := amdahl(8, 30, 100_000)
			a.SubmittedAt = w.Meta().Now - c.waited*second
			if c.starved {
				a.ReservedOn = 1
			}
			id := w.queue(a)
			w.queue(state.Action{CoresMin: 1, CoresMax: 1, SubmittedAt: w.Meta().Now})
			if c.starved {
				n := *w.Node(1)
				n.ReservedFor = id
				w.PutNode(&n)
			}
			got, counted := make([]int, w.last), false
			for p := NewPass(w.State, state.QueueOf(state.PoolQueue, 1)); ; {
				d, ok := p.Next()
				if !ok {
					break
				}
				counted = counted || d.Bypassed[0] != nil && d.Bypassed[0].ID == id
				w.start(d)
				got[d.Start.ID-1] = d.Cores.Len()
			}
			if fmt.Sprint(got) != c.want || counted != c.counted {
				t.Errorf("widths %v, bypassed: %v; want %s, %v", got, counted, c.want, c.counted)
			}
		})
	}
}

// TestWhatRunsHasAPrice is an example of docs/scheduling.md: where others run that could have been narrower, or wait,
// nobody takes all that is free.
func TestWhatRunsHasAPrice(t *testing.T) {
	w := newWorld(256)
	w.queue(amdahl(32, 100, 70_000))
	if got := w.widths(state.QueueOf(state.PoolQueue, 1))[0]; got != 32 {
		t.Errorf("alone it gets %d cores, want all 32", got)
	}
	w = newWorld(256)
	for range 32 {
		w.running(amdahl(32, 100, 70_000), 4, 0)
	}
	w.queue(amdahl(32, 100, 70_000))
	if got := w.widths(state.QueueOf(state.PoolQueue, 1))[32]; got != 6 {
		t.Errorf("beside 32 others it gets %d cores, want 6", got)
	}
}
