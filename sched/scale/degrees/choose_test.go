package degrees_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
	"rota/sched/scale/degrees"
)

// uniform are as many workers of an option as the budget has.
func (in *drawn) uniform(option int) (workers []partition.Worker) {
	for range in.budget / in.gpus[option] {
		workers = append(workers, in.options[option].Worker)
	}
	return workers
}

// TestChooseIsNeverWorseThanACandidate: with predictions that are trusted, the choice drains no later
// than what Allocate has and than each degree for all workers.
func TestChooseIsNeverWorseThanACandidate(t *testing.T) {
	better := false
	rapid.Check(t, func(t *rapid.T) {
		in := draw(t, 30, 16)
		lengths := partition.Trajectories{Lengths: in.lengths}
		var a degrees.Allocator
		got, err := a.Choose(lengths, in.options, in.budget, 0)
		if err != nil {
			t.Fatal(err)
		}
		gpus, workers := 0, []partition.Worker(nil)
		for i, o := range got.Options {
			gpus += in.gpus[o]
			workers = append(workers, in.options[o].Worker)
			if i > 0 && in.gpus[o] > in.gpus[got.Options[i-1]] {
				t.Fatalf("the highest degree is not first: %+v", got)
			}
		}
		if gpus != got.GPUs || gpus > in.budget {
			t.Fatalf("%d GPUs of %d: %+v", gpus, in.budget, got)
		}
		drained := func(workers []partition.Worker) int64 {
			plan, err := new(partition.Planner).Drain(lengths, workers)
			if err != nil {
				t.Fatal(err)
			}
			return plan.MakespanNS
		}
		if got.MakespanNS != drained(workers) || got.ExpectedNS != got.MakespanNS {
			t.Fatalf("%+v drains after %d", got, drained(workers))
		}
		exact, err := a.Allocate(lengths, in.options, in.budget)
		if err != nil {
			t.Fatal(err)
		}
		workers = nil
		for _, w := range exact.Workers {
			workers = append(workers, in.options[w.Option].Worker)
		}
		least := drained(workers)
		better = better || got.MakespanNS < least
		if exact.GPUs < in.budget { // the candidate has workers for the other GPUs too
			least = got.MakespanNS
		}
		for o := range in.options {
			if w := in.uniform(o); len(w) > 0 && in.budget%in.gpus[o] == 0 {
				least = min(least, drained(w))
			}
		}
		if got.MakespanNS > least {
			t.Fatalf("%+v, a candidate drains after %d", got, least)
		}
	})
	if !better {
		t.Error("no choice is better than the degrees of Allocate")
	}
}

// TestDoubtAvoidsUnequalDegrees: one long trajectory among short ones. Degree 2 is twice as fast alone,
// and a worker of degree 1 has many at a time. If it is known which one is long, it gets the high
// degree; if not, equal degrees are better.
func TestDoubtAvoidsUnequalDegrees(t *testing.T) {
	in := drawn{gpus: []int{1, 2}, budget: 4, lengths: append([]int64{4000}, slices.Repeat([]int64{300}, 400)...)}
	for _, alone := range []int64{100, 50} {
		times := []int64{0}
		for n := range int64(len(in.lengths)) {
			// Degree 2 gains in latency and not in throughput.
			times = append(times, alone+2*(n+1))
		}
		in.add(t, times)
	}
	choose := func(doubt int) degrees.Choice {
		got, err := new(degrees.Allocator).Choose(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget, doubt)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	known, blind := choose(0), choose(100)
	if slices.Equal(known.Options, blind.Options) || known.ExpectedNS != known.MakespanNS || blind.ExpectedNS <= blind.MakespanNS {
		t.Errorf("trusting %+v, doubting %+v", known, blind)
	}
	if len(slices.Compact(slices.Clone(known.Options))) < 2 || len(slices.Compact(slices.Clone(blind.Options))) > 1 {
		t.Errorf("trusting %+v, doubting %+v", known, blind)
	}
}

// TestMergingAndSplittingHelps: on a long tail, with 8 GPUs, degrees are better than those of Allocate
// and than each degree for all workers.
func TestMergingAndSplittingHelps(t *testing.T) {
	in := step(t, 6400)
	in.budget = 8
	lengths := partition.Trajectories{Lengths: in.lengths}
	got, err := new(degrees.Allocator).Choose(lengths, in.options, in.budget, 0)
	if err != nil {
		t.Fatal(err)
	}
	exact, err := new(degrees.Allocator).Allocate(lengths, in.options, in.budget)
	if err != nil {
		t.Fatal(err)
	}
	candidates := [][]partition.Worker{nil}
	for _, w := range exact.Workers {
		candidates[0] = append(candidates[0], in.options[w.Option].Worker)
	}
	for o := range in.options {
		candidates = append(candidates, in.uniform(o))
	}
	for _, workers := range candidates {
		if plan, err := new(partition.Planner).Drain(lengths, workers); err != nil || plan.MakespanNS <= got.MakespanNS {
			t.Errorf("%d workers drain after %d, the choice %+v: %v", len(workers), plan.MakespanNS, got, err)
		}
	}
}

// TestSpread: it has the mean that is given, and a long tail.
func TestSpread(t *testing.T) {
	if got := degrees.Spread(2, 100); !slices.Equal(got, []int64{150, 50}) {
		t.Errorf("two of mean 100: %v", got)
	}
	lengths, sum := degrees.Spread(1000, 2000), int64(0)
	for _, length := range lengths {
		sum += length
	}
	if mean := sum / 1000; mean < 1990 || mean > 2000 || lengths[0] < 7*2000 || !slices.IsSortedFunc(lengths, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("mean %d, longest %d", mean, lengths[0])
	}
	if len(degrees.Spread(0, 1)) > 0 {
		t.Error("lengths of nothing")
	}
}

func TestChooseRefuses(t *testing.T) {
	var one drawn
	one.gpus = []int{2}
	one.add(t, []int64{0, 5})
	for _, doubt := range []int{-1, 101} {
		if _, err := new(degrees.Allocator).Choose(partition.Trajectories{Lengths: []int64{1}}, one.options, 2, doubt); err == nil || !strings.Contains(err.Error(), "give 0 to 100") {
			t.Errorf("doubt %d: %v", doubt, err)
		}
	}
	if _, err := new(degrees.Allocator).Choose(partition.Trajectories{Lengths: []int64{1}}, one.options, 1, 0); err == nil {
		t.Error("a budget below the lowest degree is accepted")
	}
}
