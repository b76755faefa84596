package partition_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
)

// drawnWorkers are workers with a point for each batch size up to n, and their times by hand.
func drawnWorkers(t *rapid.T, n, most, kinds int) (workers []partition.Worker, cost [][]int64) {
	drawn := make([][]int64, rapid.IntRange(1, kinds).Draw(t, "kinds"))
	for k := range drawn {
		drawn[k] = append(drawn[k], 0)
		at := int64(0)
		for range n {
			at += rapid.Int64Range(0, 9).Draw(t, "rise")
			drawn[k] = append(drawn[k], max(1, at))
		}
	}
	for range rapid.IntRange(1, most).Draw(t, "workers") {
		k := rapid.IntRange(0, len(drawn)-1).Draw(t, "kind")
		points := make([]partition.Point, n)
		for i := range points {
			points[i] = partition.Point{Batch: i + 1, TokenNS: drawn[k][i+1]}
		}
		curve, err := partition.NewCurve(points, 0)
		if err != nil {
			t.Fatal(err)
		}
		workers, cost = append(workers, partition.Worker{Curve: curve}), append(cost, drawn[k])
	}
	return workers, cost
}

func drawnLengths(t *rapid.T, most int) []int64 {
	lengths := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, 200)), 1, most).Draw(t, "lengths")
	slices.SortFunc(lengths, func(a, b int64) int { return int(b - a) })
	return lengths
}

// verify checks that a plan is whole, and has the makespan that it says.
func verify(t *rapid.T, plan partition.Plan, lengths, contexts []int64, cost [][]int64, share []int64) {
	t.Helper()
	if got := makespanOf(plan.Workers, lengths, contexts, cost, share); got != plan.MakespanNS {
		t.Fatalf("plan %+v has makespan %d", plan, got)
	}
	seen := make([]bool, len(cost))
	rank := 0
	for _, g := range plan.Groups {
		if seen[g.Worker] {
			t.Fatalf("worker %d has two groups: %+v", g.Worker, plan)
		}
		seen[g.Worker] = true
		for range g.Size {
			if !plan.Improved && plan.Workers[rank] != g.Worker {
				t.Fatalf("trajectory %d is not in the group of its worker: %+v", rank, plan)
			}
			rank++
		}
	}
	if slices.Contains(seen, false) || rank != len(lengths) {
		t.Fatalf("%d trajectories in groups, workers %v: %+v", rank, seen, plan)
	}
}

func TestPlanEqualsTheLiteralProgrammeOverAllOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 14)
		workers, cost := drawnWorkers(t, len(lengths), 5, 3)
		var p partition.Planner
		plan, err := p.Plan(partition.Trajectories{Lengths: lengths}, workers)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, plan, lengths, nil, cost, make([]int64, len(cost)))
		if want := leastOfOrders(lengths, cost); plan.MakespanNS != want {
			t.Fatalf("makespan %d, want %d: %+v", plan.MakespanNS, want, plan)
		}
		again, err := p.Plan(partition.Trajectories{Lengths: lengths}, workers)
		if err != nil || !slices.Equal(again.Groups, plan.Groups) {
			t.Fatalf("the second plan is %+v, the first %+v, error %v", again, plan, err)
		}
	})
}

func TestPlanIsTheOptimumOverAllPlacements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 7)
		workers, cost := drawnWorkers(t, len(lengths), 3, 3)
		plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: lengths}, workers)
		if err != nil {
			t.Fatal(err)
		}
		if want := leastOfAll(lengths, nil, cost, make([]int64, len(cost))); plan.MakespanNS != want {
			t.Fatalf("makespan %d, want %d: %+v", plan.MakespanNS, want, plan)
		}
	})
}

// leastOfRuns is the least makespan over runs in any order of workers, with contexts.
func leastOfRuns(lengths, contexts []int64, cost [][]int64, share []int64) int64 {
	least := int64(math.MaxInt64)
	order := make([]int, len(cost))
	for k := range order {
		order[k] = k
	}
	of := make([]int, 0, len(lengths))
	permute(order, 0, func(order []int) {
		var cut func(k int)
		cut = func(k int) {
			if len(of) == len(lengths) {
				least = min(least, makespanOf(of, lengths, contexts, cost, share))
				return
			}
			if k == len(order) {
				return
			}
			begin := len(of)
			cut(k + 1)
			for len(of) < len(lengths) {
				of = append(of, order[k])
				cut(k + 1)
			}
			of = of[:begin]
		}
		cut(0)
	})
	return least
}

func TestContextsCount(t *testing.T) {
	improved := 0
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 7)
		workers, cost := drawnWorkers(t, len(lengths), 3, 3)
		contexts := make([]int64, len(lengths))
		for i := range contexts {
			contexts[i] = 1000 * rapid.Int64Range(0, 5).Draw(t, "context")
		}
		share := make([]int64, len(cost))
		for k := range workers {
			workers[k].ContextNS = 1000 * rapid.Int64Range(0, 2).Draw(t, "share")
			share[k] = workers[k].ContextNS / 1000
		}
		plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: lengths, Contexts: contexts}, workers)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, plan, lengths, contexts, cost, share)
		runs, all := leastOfRuns(lengths, contexts, cost, share), leastOfAll(lengths, contexts, cost, share)
		switch {
		case plan.Improved && (plan.MakespanNS >= runs || plan.MakespanNS < all):
			t.Fatalf("improved to %d, from %d; the optimum is %d", plan.MakespanNS, runs, all)
		case !plan.Improved && plan.MakespanNS != runs:
			t.Fatalf("makespan %d, want %d", plan.MakespanNS, runs)
		case plan.Improved:
			improved++
		}
	})
	if improved == 0 {
		t.Error("the local search improved nothing")
	}
}

// TestLargePlansHaveTheMakespanThatTheySay checks plans that no oracle can.
func TestLargePlansHaveTheMakespanThatTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 60)
		workers, cost := drawnWorkers(t, len(lengths), 9, 3)
		var contexts []int64
		share := make([]int64, len(cost))
		if rapid.Bool().Draw(t, "with contexts") {
			for range lengths {
				contexts = append(contexts, 1000*rapid.Int64Range(0, 99).Draw(t, "context"))
			}
			for k := range workers {
				share[k] = rapid.Int64Range(1, 9).Draw(t, "share")
				workers[k].ContextNS = 1000 * share[k]
			}
		}
		var p partition.Planner
		if rapid.Bool().Draw(t, "two orders") {
			p.OnlyTwoOrders()
		}
		plan, err := p.Plan(partition.Trajectories{Lengths: lengths, Contexts: contexts}, workers)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, plan, lengths, contexts, cost, share)
	})
}

func TestTwoOrdersWhereAllAreTooMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 8)
		workers, cost := drawnWorkers(t, len(lengths), 4, 3)
		kinds := func(k int) int {
			return slices.IndexFunc(cost, func(c []int64) bool { return slices.Equal(c, cost[k]) })
		}
		order := make([]int, len(cost))
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(cost[a][1], cost[b][1]), kinds(a)-kinds(b)) })
		sorted := make([][]int64, len(cost))
		for i, k := range order {
			sorted[i] = cost[k]
		}
		want := literalDP(lengths, sorted)
		slices.Reverse(sorted)
		want = min(want, literalDP(lengths, sorted))

		var p partition.Planner
		p.OnlyTwoOrders()
		plan, err := p.Plan(partition.Trajectories{Lengths: lengths}, workers)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, plan, lengths, nil, cost, make([]int64, len(cost)))
		switch {
		case !plan.Improved && plan.MakespanNS != want:
			t.Fatalf("makespan %d, want %d: %+v", plan.MakespanNS, want, plan)
		case plan.Improved && (plan.MakespanNS >= want || plan.MakespanNS < leastOfOrders(lengths, cost)):
			t.Fatalf("improved to %d, from %d: %+v", plan.MakespanNS, want, plan)
		}
	})
}

// TestWorkersBehindTheCriticalGroupShareTheRest: the longest trajectory decides the makespan, and
// a greedy plan would leave workers idle.
func TestWorkersBehindTheCriticalGroupShareTheRest(t *testing.T) {
	curve, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: 10}, {Batch: 2, TokenNS: 11}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	lengths := append([]int64{1000}, slices.Repeat([]int64{100}, 9)...)
	plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: lengths}, slices.Repeat([]partition.Worker{{Curve: curve}}, 4))
	want := []partition.Group{{Worker: 0, Size: 1}, {Worker: 1, Size: 3}, {Worker: 2, Size: 3}, {Worker: 3, Size: 3}}
	if err != nil || plan.MakespanNS != 10_000 || !slices.Equal(plan.Groups, want) {
		t.Errorf("plan %+v, want groups %v: %v", plan, want, err)
	}
}

// TestTheSlowerWorkerMayTakeTheLongestTrajectory is the example of the package: the order of
// Heddle is not the best one.
func TestTheSlowerWorkerMayTakeTheLongestTrajectory(t *testing.T) {
	lengths := []int64{10}
	for range 20 {
		lengths = append(lengths, 1)
	}
	curve := func(perTrajectory int64) partition.Curve {
		c, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: perTrajectory}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	workers := []partition.Worker{{Curve: curve(1)}, {Curve: curve(2)}}
	plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: lengths}, workers)
	if err != nil {
		t.Fatal(err)
	}
	want := []partition.Group{{Worker: 1, Size: 1}, {Worker: 0, Size: 20}}
	if plan.MakespanNS != 20 || !slices.Equal(plan.Groups, want) {
		t.Errorf("plan %+v, want makespan 20 and groups %v", plan, want)
	}
}

func TestPlanRefuses(t *testing.T) {
	curve, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: 5}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	one := []partition.Worker{{Curve: curve}}
	for _, c := range []struct {
		what         string
		trajectories partition.Trajectories
		workers      []partition.Worker
		want         string
	}{
		{"no worker", partition.Trajectories{Lengths: []int64{1}}, nil, "register one"},
		{"unsorted", partition.Trajectories{Lengths: []int64{1, 2}}, one, "sort them"},
		{"negative", partition.Trajectories{Lengths: []int64{-1}}, one, "none below 0"},
		{"contexts", partition.Trajectories{Lengths: []int64{2, 1}, Contexts: []int64{1}}, one, "give one each"},
		{"a negative context", partition.Trajectories{Lengths: []int64{2}, Contexts: []int64{-1}}, one, "0 or more"},
		{"no curve", partition.Trajectories{Lengths: []int64{1}}, []partition.Worker{{}}, "no curve"},
	} {
		if _, err := new(partition.Planner).Plan(c.trajectories, c.workers); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.what, err, c.want)
		}
	}
	plan, err := new(partition.Planner).Plan(partition.Trajectories{}, one)
	if err != nil || plan.MakespanNS != 0 || !slices.Equal(plan.Groups, []partition.Group{{}}) {
		t.Errorf("no trajectories: %+v, %v", plan, err)
	}
}
