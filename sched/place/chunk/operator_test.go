package chunk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// task can run on these numbers of GPUs, for so long on each.
type task struct {
	units []int
	took  []int64
}

func (t task) degrees() Degrees { return Degrees{slices.Min(t.units), slices.Max(t.units)} }

func degrees(tasks []task) (ds []Degrees) {
	for _, t := range tasks {
		ds = append(ds, t.degrees())
	}
	return ds
}

const never = math.MaxInt64 / 2

// operator is what an arrangement needs to see of a topology.
type operator interface {
	States() int
	Full() int
	Prev(state, units int) (int, bool)
}

// arrange is Algorithm 3 in short: for each prefix of the tasks the least sum of
// durations, never if they do not fit; and of all tasks the GPUs of each.
func arrange(o operator, tasks []task) (sums []int64, units []int) {
	best := make([]int64, o.States())
	sums = append(sums, best[o.Full()])
	var choices [][]int8
	for _, t := range tasks {
		next, choice := make([]int64, len(best)), make([]int8, len(best))
		for s := range next {
			next[s], choice[s] = never, -1
			for i, k := range t.units {
				if p, ok := o.Prev(s, k); ok && best[p] < never && best[p]+t.took[i] < next[s] {
					next[s], choice[s] = best[p]+t.took[i], int8(i)
				}
			}
		}
		best, choices, sums = next, append(choices, choice), append(sums, next[o.Full()])
	}
	state := o.Full()
	for i := len(tasks) - 1; i >= 0 && sums[len(tasks)] < never; i-- {
		k := tasks[i].units[choices[i][state]]
		units = append(units, k)
		state, _ = o.Prev(state, k)
	}
	slices.Reverse(units)
	return sums, units
}

var drawTask = rapid.Custom(func(r *rapid.T) task {
	var t task
	took := int64(rapid.IntRange(300, 400).Draw(r, "took"))
	for _, k := range []int{1, 2, 4, 8, 3} {
		if rapid.Bool().Draw(r, "allowed") {
			t.units, t.took = append(t.units, k), append(t.took, took)
		}
		took -= int64(rapid.IntRange(-5, 50).Draw(r, "gain"))
	}
	if len(t.units) == 0 {
		return task{[]int{1}, []int64{took}}
	}
	return t
})

// searched is the least sum, of all degrees and all packings.
func searched(free []Set, tasks []task) int64 {
	best := int64(never)
	levels := make([]Level, len(tasks))
	var try func(i int, sum int64)
	try = func(i int, sum int64) {
		if i == len(tasks) {
			if sum < best && !packings(free, levels, func([]Set) bool { return false }) {
				best = sum
			}
			return
		}
		for j, k := range tasks[i].units {
			levels[i], _ = LevelFor(k)
			try(i+1, sum+tasks[i].took[j])
		}
	}
	try(0, 0)
	return best
}

// TestOperatorAgainstAllPackings compares every prefix with all degrees and all
// packings, and places what was arranged, residents preferred.
func TestOperatorAgainstAllPackings(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		free := drawFree(r, 2, 8)
		tasks := rapid.SliceOfN(drawTask, 3, 5).Draw(r, "tasks")
		o, ok := NewOperator(countsOf(free), degrees(tasks), 1<<20)
		if !ok || o.Hidden() != 0 {
			r.Fatalf("no exact operator for %v", countsOf(free))
		}
		sums, units := arrange(o, tasks)
		for i, got := range sums {
			if want := searched(free, tasks[:i]); got != want {
				r.Fatalf("free %v: the first %d tasks take %d, at best %d", countsOf(free), i, got, want)
			}
		}
		place(r, free, units)
	})
}

// place allocates what was arranged, in a random order; wherever residents are, it
// must not fail.
func place(r *rapid.T, free []Set, units []int) {
	var ns Nodes
	for i, s := range free {
		n := Node{ID: uint64(i), Free: s}
		for g := range uint8(8) {
			l := anyLevel.Draw(r, "level")
			n.Residents = append(n.Residents, on(Variant(1+l), Chunk{g, 0}.parent(l).Start, l, int64(g)))
		}
		ns = append(ns, n)
	}
	var rest Counts
	var levels []Level
	for _, k := range units {
		l, _ := LevelFor(k)
		levels, rest = append(levels, l), rest.put(l)
	}
	if len(levels) == 0 {
		return
	}
	for _, l := range rapid.Permutation(levels).Draw(r, "order") {
		rest[l]--
		w := Request{Variant: Variant(1 + l), Level: l, Rest: rest}
		d, ok := Choose(ns, w)
		if !ok {
			r.Fatalf("%v were arranged, and there is no place for level %d", units, l)
		}
		left, ok := ns[d.Node].Free.Take(d.Chunk)
		if !ok {
			r.Fatalf("chose %v, which is not free", d.Chunk)
		}
		ns[d.Node].Free = left
	}
}

// unclipped is the operator as a function of counts, nothing left out: the oracle
// where packings are too many.
func unclipped(free Counts, tasks []task, memo map[string]int64) int64 {
	if len(tasks) == 0 {
		return 0
	}
	key := fmt.Sprint(free, len(tasks))
	if best, ok := memo[key]; ok {
		return best
	}
	best, last := int64(never), tasks[len(tasks)-1]
	for i, k := range last.units {
		l, _ := LevelFor(k)
		if left, _, ok := free.Take(l); ok {
			best = min(best, last.took[i]+unclipped(left, tasks[:len(tasks)-1], memo))
		}
	}
	memo[key] = best
	return best
}

var drawCounts = rapid.Map(rapid.SliceOfN(rapid.IntRange(0, 9), Levels, Levels), func(n []int) Counts { return Counts(n) })

// TestClippingLosesNothing compares with counts that are not clipped.
func TestClippingLosesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		free, tasks := drawCounts.Draw(r, "free"), rapid.SliceOfN(drawTask, 4, 9).Draw(r, "tasks")
		o, _ := NewOperator(free, degrees(tasks), 1<<20)
		sums, _ := arrange(o, tasks)
		memo := make(map[string]int64)
		for i, got := range sums {
			if want := unclipped(free, tasks[:i], memo); got != want {
				r.Fatalf("the first %d tasks take %d, at best %d", i, got, want)
			}
		}
	})
}

// TestHidingIsSafe sets a limit: what is arranged still fits, is no better than
// the best, and exists if the tasks fit at their least.
func TestHidingIsSafe(t *testing.T) {
	hidden := 0
	rapid.Check(t, func(r *rapid.T) {
		free, tasks := drawCounts.Draw(r, "free"), rapid.SliceOfN(drawTask, 4, 9).Draw(r, "tasks")
		limit := rapid.IntRange(1, 100).Draw(r, "limit")
		o, ok := NewOperator(free, degrees(tasks), limit)
		if !ok {
			return
		}
		if o.States() > limit {
			r.Fatalf("%d states, at most %d are allowed", o.States(), limit)
		}
		if o.Hidden() > 0 {
			hidden++
		}
		exact, _ := NewOperator(free, degrees(tasks), 1<<20)
		sums, units := arrange(o, tasks)
		best, _ := arrange(exact, tasks)
		var demand Counts
		for _, k := range units {
			l, _ := LevelFor(k)
			demand = demand.put(l)
		}
		if !free.Fits(demand) {
			r.Fatalf("%v was arranged in %v", units, free)
		}
		for i := range sums {
			fits := free.Fits(least(degrees(tasks)))
			if sums[i] < best[i] || fits && sums[i] == never || o.Hidden() == 0 && sums[i] != best[i] {
				r.Fatalf("the first %d tasks take %d, at best %d, hidden %d", i, sums[i], best[i], o.Hidden())
			}
		}
	})
	if hidden == 0 {
		t.Error("nothing was ever hidden")
	}
}

// TestWhatFewerStatesCost measures hiding against the best: tasks as reward models
// are, of very different lengths (go test -v).
func TestWhatFewerStatesCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct {
		free  Counts
		tasks int
	}{{Counts{14, 6, 7, 19}, 32}, {Counts{14, 6, 7, 19}, 64}, {Counts{8, 0, 22, 53}, 96}, {Counts{12, 12, 12, 6}, 40}} {
		var tasks []task
		for range c.tasks {
			one := int64(1000 + 1000*rng.IntN(30)*rng.IntN(10))
			serial := int64(rng.IntN(40)) // percent
			var tk task
			for k := int64(1); k <= 8; k *= 2 {
				tk.units, tk.took = append(tk.units, int(k)), append(tk.took, one*(serial*k+100-serial)/(100*k))
			}
			tasks = append(tasks, tk)
		}
		within := func(limit int) (sum int64, states int) {
			o, ok := NewOperator(c.free, degrees(tasks), limit)
			if !ok {
				t.Fatalf("%v does not suffice for %d tasks", c.free, c.tasks)
			}
			sums, _ := arrange(o, tasks)
			return sums[len(tasks)], o.States()
		}
		best, states := within(1 << 20)
		line := fmt.Sprintf("free %v, %d tasks: %d states", c.free, c.tasks, states)
		for _, limit := range []int{4096, 1024, 256} {
			sum, _ := within(limit)
			if sum < best {
				t.Errorf("%d hidden states are better than all", limit)
			}
			line += fmt.Sprintf("; hidden to %d: +%.1f %%", limit, percent(sum, best))
		}
		t.Log(line)
	}
}

func percent(sum, best int64) float64 { return 100 * (float64(sum)/float64(best) - 1) }

// allDegrees are n tasks that can use any degree.
func allDegrees(n int) []Degrees { return slices.Repeat([]Degrees{{1, 8}}, n) }

func TestEncodeDecode(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o, _ := NewOperator(drawCounts.Draw(r, "free"), allDegrees(rapid.IntRange(0, 9).Draw(r, "tasks")), 1<<20)
		for s := range o.States() {
			if got := o.Encode(o.Decode(s)); got != s {
				r.Fatalf("state %d is %v is state %d", s, o.Decode(s), got)
			}
			for units := -1; units <= 9; units++ {
				l, ok := LevelFor(units)
				left, _, fits := o.Decode(s).Take(l)
				p, got := o.Prev(s, units)
				if got != (ok && fits) || got && (p < 0 || p >= o.States() || o.Decode(p) != left) {
					r.Fatalf("%d from %v leaves %v, %v, want %v", units, o.Decode(s), o.Decode(p), got, left)
				}
			}
		}
		for _, s := range []int{-1, o.States()} {
			if _, ok := o.Prev(s, 1); ok {
				r.Fatalf("there is no state %d", s)
			}
		}
	})
}

func TestPrevOfWhatNobodyAskedFor(t *testing.T) {
	o, _ := NewOperator(Counts{3, 0, 0, 2}, []Degrees{{4, 8}, {4, 4}}, 100)
	if _, ok := o.Prev(o.Full(), 1); ok {
		t.Error("a task of 1 is served where all take at least 4")
	}
	if full := o.Decode(o.Full()); full != (Counts{0, 0, 1, 1}) || o.States() != 4 {
		t.Errorf("%d states, the full one %v: more than they can use", o.States(), full)
	}
	if _, ok := NewOperator(Counts{}, make([]Degrees, TasksMax+1), 100); ok {
		t.Error("any number of tasks is accepted")
	}
	if o, ok := NewOperator(Counts{5, 5, 5, 5}, nil, 1); !ok || o.States() != 1 {
		t.Error("no task needs more than one state")
	}
}

// TestWhichStatesAreReal compares the states that are reached from an empty node
// with its free sets. Those that allocations lead to are all real, and the mixed
// radix has others.
func TestWhichStatesAreReal(t *testing.T) {
	real := make(map[Counts]bool)
	for free := range Set(256) {
		real[free.Counts()] = true
	}
	for free := range Set(256) {
		o, _ := NewOperator(free.Counts(), allDegrees(8), 1<<20)
		reached := []int{o.Full()}
		for i := 0; i < len(reached); i++ {
			if n := o.Decode(reached[i]); !real[n] {
				t.Fatalf("no free set of 8 GPUs has the counts %v", n)
			}
			for l := range Level(Levels) {
				if p, ok := o.Prev(reached[i], l.Units()); ok && !slices.Contains(reached, p) {
					reached = append(reached, p)
				}
			}
		}
		if free == All(8) && len(reached) != 9 {
			t.Errorf("%d states are reached from a whole node", len(reached))
		}
	}
	for _, n := range []Counts{{5}, {1, 0, 2}, {0, 0, 0, 2}} {
		if real[n] {
			t.Errorf("%v is real on a node of 8 GPUs", n)
		}
	}
	t.Logf("%d tuples of counts are real on one node of 8 GPUs, of 5*5*3*2 in a plain radix", len(real))
}

// printed is Prev as Algorithm 4 prints it.
func printed(n Counts, k int) (Counts, bool) {
	for l := Levels - 1; l >= 0; l-- {
		use := min(n[l], k>>l)
		n[l] -= use
		k -= use << l
	}
	return n, k == 0
}

// TestThePrintedOperator counts, over all free sets of a node, where the printed
// operator says something that is not so.
func TestThePrintedOperator(t *testing.T) {
	if _, ok := printed(Counts{0, 0, 0, 1}, 1); ok {
		t.Error("the printed operator splits a chunk")
	}
	if left, ok := printed(Counts{2, 1, 1}, 8); !ok || left != (Counts{}) {
		t.Error("the printed operator does not put 8 GPUs together from 4, 2, 1 and 1")
	}
	illegal, refused, asked := 0, 0, 0
	for free := range Set(256) {
		for l := range Level(Levels) {
			_, says := printed(free.Counts(), l.Units())
			is := packable([]Set{free}, Counts{}.put(l))
			asked++
			if says && !is {
				illegal++
			}
			if is && !says {
				refused++
			}
		}
	}
	if illegal == 0 || refused == 0 {
		t.Errorf("printed: %d allocations are no chunk, %d chunks are refused", illegal, refused)
	}
	t.Logf("of %d questions the printed operator answers %d with GPUs that are no chunk, and refuses %d chunks", asked, illegal, refused)
}

// churn leaves nodes as a while of allocations and releases does, with about so
// many percent of their GPUs taken.
func churn(nodes, percent int) Nodes {
	rng := rand.New(rand.NewPCG(1, uint64(percent)))
	ns := make(Nodes, nodes)
	for i := range ns {
		ns[i] = Node{ID: uint64(i), Free: All(8)}
	}
	var live []held
	taken := 0
	for range 40 * nodes {
		l := Level(rng.IntN(Levels))
		if d, ok := Choose(ns, Request{Level: l}); ok && (taken+l.Units())*100 <= nodes*8*percent {
			ns[d.Node].Free, _ = ns[d.Node].Free.Take(d.Chunk)
			live, taken = append(live, held{node: int(d.Node), chunk: d.Chunk}), taken+l.Units()
			continue
		}
		if len(live) == 0 {
			continue
		}
		i := rng.IntN(len(live))
		h := live[i]
		live[i] = live[len(live)-1]
		live, taken = live[:len(live)-1], taken-h.chunk.Units()
		ns[h.node].Free, _ = ns[h.node].Free.Release(h.chunk)
	}
	return ns
}

// TestStates measures how many states there are (go test -v).
func TestStates(t *testing.T) {
	for _, nodes := range []int{5, 256} {
		for _, percent := range []int{0, 25, 50, 75, 90} {
			free := Counts{0, 0, 0, nodes}
			if percent > 0 {
				free = churn(nodes, percent).Free()
			}
			logStates(t, fmt.Sprintf("%3d nodes, %2d%% taken", nodes, percent), free)
		}
	}
	logStates(t, "the most states 128 tasks can make", Counts{128, 128, 80, 40})
	for _, tasks := range []int{1, 4, 5, 128} {
		o, _ := NewOperator(Counts{0, 0, 0, 5}, allDegrees(tasks), 1<<20)
		if want := 8 * (1 + min(5, tasks)); o.States() != want {
			t.Errorf("5 empty nodes and %d tasks make %d states, want %d", tasks, o.States(), want)
		}
	}
	// Two tasks take two chunks, however many small ones two times 8 GPUs would be.
	if o, _ := NewOperator(Counts{9, 9}, allDegrees(2), 1<<20); o.States() != 2*3 {
		t.Errorf("2 tasks make %d states of chunks of 2: %v", o.States(), o.Decode(o.Full()))
	}
}

func logStates(t *testing.T, what string, free Counts) {
	for _, tasks := range []int{8, 16, 32, 128} {
		all := Operator{full: clip(free, allDegrees(tasks), touches(allDegrees(tasks)))}
		states, gpus := all.measure(touches(allDegrees(tasks))), all.full.Units()
		o, ok := NewOperator(free, allDegrees(tasks), 1024)
		if !ok {
			t.Fatalf("no operator for %v", free)
		}
		t.Logf("%s, free %v, %3d tasks: %9d states; within 1024: %4d, %d of %d GPUs hidden",
			what, free, tasks, states, o.States(), o.Hidden(), gpus)
	}
}
