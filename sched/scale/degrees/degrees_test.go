package degrees_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
	"rota/sched/scale/degrees"
)

// drawn is an input with times by hand: cost of option d with n trajectories is cost[d][n].
type drawn struct {
	lengths []int64
	options []degrees.Option
	gpus    []int
	cost    [][]int64
	budget  int
}

func draw(t *rapid.T, most, budget int) drawn {
	in := drawn{
		lengths: rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, 200)), 1, most).Draw(t, "lengths"),
		gpus:    []int{1, 2, 4, 8}[:rapid.IntRange(1, 4).Draw(t, "degrees")],
		budget:  rapid.IntRange(1, budget).Draw(t, "budget"),
	}
	slices.SortFunc(in.lengths, func(a, b int64) int { return int(b - a) })
	for range in.gpus {
		times, at := []int64{0}, int64(0)
		for range in.lengths {
			at += rapid.Int64Range(0, 9).Draw(t, "rise")
			times = append(times, max(1, at))
		}
		in.add(t, times)
	}
	return in
}

type fataler interface{ Fatal(args ...any) }

func (in *drawn) add(t fataler, times []int64) {
	var points []partition.Point
	for n, ns := range times[1:] {
		points = append(points, partition.Point{Batch: n + 1, TokenNS: ns})
	}
	curve, err := partition.NewCurve(points, 0)
	if err != nil {
		t.Fatal(err)
	}
	in.cost = append(in.cost, times)
	in.options = append(in.options, degrees.Option{GPUs: in.gpus[len(in.options)], Worker: partition.Worker{Curve: curve}})
}

// sequences visits every order of degrees within the budget, or those that fall only.
func (in *drawn) sequences(falling bool, visit func(cost [][]int64)) {
	var cost [][]int64
	var add func(left, most int)
	add = func(left, most int) {
		if len(cost) > 0 {
			visit(cost)
		}
		for d := range most + 1 {
			if in.gpus[d] > left {
				continue
			}
			cost = append(cost, in.cost[d])
			if falling {
				add(left-in.gpus[d], d)
			} else {
				add(left-in.gpus[d], most)
			}
			cost = cost[:len(cost)-1]
		}
	}
	add(in.budget, len(in.gpus)-1)
}

func (in *drawn) least(falling bool) int64 {
	least := int64(math.MaxInt64)
	in.sequences(falling, func(cost [][]int64) { least = min(least, literalDP(in.lengths, cost)) })
	return least
}

// verify checks what an allocation says of itself.
func (in *drawn) verify(t *rapid.T, got degrees.Allocation) {
	t.Helper()
	rank, gpus, makespan := 0, 0, int64(0)
	for _, w := range got.Workers {
		if w.Size < 1 {
			t.Fatalf("a worker without trajectories: %+v", got)
		}
		makespan = max(makespan, in.lengths[rank]*in.cost[w.Option][w.Size])
		rank += w.Size
		gpus += in.gpus[w.Option]
	}
	if rank != len(in.lengths) || gpus != got.GPUs || gpus > in.budget || makespan != got.MakespanNS || got.FewestGPUs > gpus {
		t.Fatalf("%d trajectories on %d GPUs have makespan %d: %+v", rank, gpus, makespan, got)
	}
}

func TestAllocateEqualsBruteForceOverAllDegrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t, 12, 7)
		var a degrees.Allocator
		got, err := a.Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget)
		if err != nil {
			t.Fatal(err)
		}
		in.verify(t, got)
		if want := in.least(false); got.MakespanNS != want {
			t.Fatalf("makespan %d, want %d: %+v", got.MakespanNS, want, got)
		}
		if falling := in.least(true); got.MakespanNS > falling {
			t.Fatalf("makespan %d, with falling degrees %d: %+v", got.MakespanNS, falling, got)
		}
		in.budget = got.FewestGPUs - 1
		if in.budget > 0 && in.least(false) <= got.MakespanNS {
			t.Fatalf("%d GPUs have the same makespan: %+v", in.budget, got)
		}
		again, err := a.Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, got.FewestGPUs)
		if err != nil || again.MakespanNS != got.MakespanNS {
			t.Fatalf("with the fewest GPUs: %+v, with more %+v: %v", again, got, err)
		}
	})
}

// TestAllocateEqualsBruteForceOverFallingDegrees: where the order of workers does not matter, as
// where a degree makes all times shorter by one factor and time does not grow with the group, the
// class of Heddle holds the optimum too.
func TestAllocateEqualsBruteForceOverFallingDegrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t, 12, 7)
		in.options, in.cost = nil, nil
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		for _, gpus := range in.gpus {
			times := []int64{0}
			for n := range len(in.lengths) {
				ns := int64(1200 / gpus)
				if n >= slots*gpus {
					ns = 1 << 30 // nothing fits any more
				}
				times = append(times, ns)
			}
			in.add(t, times)
		}
		got, err := new(degrees.Allocator).Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget)
		if err != nil {
			t.Fatal(err)
		}
		in.verify(t, got)
		if want := in.least(true); got.MakespanNS != want {
			t.Fatalf("makespan %d, with falling degrees %d: %+v", got.MakespanNS, want, got)
		}
	})
}

// TestThePartitionOfAnAllocationHasItsMakespan ties the two packages together.
func TestThePartitionOfAnAllocationHasItsMakespan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t, 40, 24)
		got, err := new(degrees.Allocator).Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget)
		if err != nil {
			t.Fatal(err)
		}
		in.verify(t, got)
		var workers []partition.Worker
		for _, w := range got.Workers {
			workers = append(workers, in.options[w.Option].Worker)
		}
		plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: in.lengths}, workers)
		if err != nil || plan.MakespanNS != got.MakespanNS {
			t.Fatalf("the partition has makespan %d, the allocation %d: %v", plan.MakespanNS, got.MakespanNS, err)
		}
	})
}

func TestAnnealingIsNeverBetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t, 12, 16)
		got, err := new(degrees.Allocator).Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget)
		if err != nil {
			t.Fatal(err)
		}
		baseline := annealing{
			lengths: in.lengths, gpus: in.gpus, cost: in.cost, budget: in.budget, cooling: 0.97,
			random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)),
		}
		if best := baseline.best(); best < got.MakespanNS {
			t.Fatalf("annealing found %d, the allocation %d: %+v", best, got.MakespanNS, got)
		}
	})
}

// TestLongTrajectoriesGetHighDegrees is a step with a long tail: the shape of Heddle's Figure 11.
func TestLongTrajectoriesGetHighDegrees(t *testing.T) {
	in := drawn{gpus: []int{1, 2, 4, 8}, budget: 16, lengths: append([]int64{1000, 900}, slices.Repeat([]int64{100}, 40)...)}
	for _, gpus := range in.gpus {
		times := []int64{0}
		for n := range len(in.lengths) {
			times = append(times, int64(80/gpus+10)+int64(8*n/gpus))
		}
		in.add(t, times)
	}
	got, err := new(degrees.Allocator).Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget)
	if err != nil {
		t.Fatal(err)
	}
	// The longest alone takes 1,000 tokens of 20 ns. The next one needs degree 8 for that too.
	if got.MakespanNS != 21_000 || got.Workers[0].Size != 2 || in.gpus[got.Workers[0].Option] != 8 || got.GPUs != 16 || got.FewestGPUs > 16 {
		t.Errorf("allocation %+v", got)
	}
}

func TestAllocateRefuses(t *testing.T) {
	var one drawn
	one.gpus = []int{2}
	one.add(t, []int64{0, 5})
	lengths := partition.Trajectories{Lengths: []int64{1}}
	for want, c := range map[string]struct {
		options []degrees.Option
		budget  int
		t       partition.Trajectories
	}{
		"give 1 to 64":      {nil, 4, lengths},
		"give at least 2":   {one.options, 1, lengths},
		"give at most":      {one.options, 1 << 20, lengths},
		"give 1 or more":    {[]degrees.Option{{Worker: one.options[0].Worker}}, 4, lengths},
		"has no curve":      {[]degrees.Option{{GPUs: 1}}, 4, lengths},
		"the longest first": {one.options, 4, partition.Trajectories{Lengths: []int64{1, 2}}},
	} {
		if _, err := new(degrees.Allocator).Allocate(c.t, c.options, c.budget); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if got, err := new(degrees.Allocator).Allocate(partition.Trajectories{}, one.options, -1); err != nil || len(got.Workers) > 0 {
		t.Errorf("nothing to allocate: %+v, %v", got, err)
	}
}
