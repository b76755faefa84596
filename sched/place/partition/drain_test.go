package partition_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
)

// drawnShares give each worker a cost of contexts, the same to workers of the same times.
func drawnShares(t *rapid.T, workers []partition.Worker) []int64 {
	share := make([]int64, len(workers))
	for i := range workers {
		share[i] = rapid.SampledFrom([]int64{0, 0, 300, 1000}).Draw(t, "share")
		workers[i].ContextNS = share[i]
	}
	return share
}

func drawnContexts(t *rapid.T, n int) []int64 {
	return rapid.SliceOfN(rapid.Int64Range(0, 50), n, n).Draw(t, "contexts")
}

// drainedNS generates token by token: at each, those that have not ended are the batch, and pay for
// their contexts.
func drainedNS(worker int, of []int, lengths, contexts []int64, cost [][]int64, share []int64) (ns int64) {
	for token := int64(1); token <= lengths[0]; token++ {
		batch := 0
		for rank, at := range of {
			if at == worker && lengths[rank] >= token {
				batch++
				ns += share[worker] * contexts[rank] / 1000
			}
		}
		ns += cost[worker][batch]
	}
	return ns
}

// lastDrained is when the last worker has.
func lastDrained(of []int, lengths, contexts []int64, cost [][]int64, share []int64) (last int64) {
	for worker := range cost {
		last = max(last, drainedNS(worker, of, lengths, contexts, cost, share))
	}
	return last
}

func TestDrainNSEqualsTokenByToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 12)
		workers, cost := drawnWorkers(t, len(lengths), 4, 3)
		share, contexts := drawnShares(t, workers), drawnContexts(t, len(lengths))
		of := make([]int, len(lengths))
		for i := range of {
			of[i] = rapid.IntRange(0, len(workers)-1).Draw(t, "worker")
		}
		got, err := new(partition.Planner).DrainNS(partition.Trajectories{Lengths: lengths, Contexts: contexts}, workers, of)
		if want := lastDrained(of, lengths, contexts, cost, share); err != nil || got != want {
			t.Fatalf("drained after %d ns, want %d: %v", got, want, err)
		}
	})
}

// TestDrainIsNeverWorseThanItsCandidates, and says what it is; the search that changes one or two
// members at a time counts what a count from the beginning does.
func TestDrainIsNeverWorseThanItsCandidates(t *testing.T) {
	improved := false
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 14)
		workers, cost := drawnWorkers(t, len(lengths), 4, 3)
		share, contexts := drawnShares(t, workers), drawnContexts(t, len(lengths))
		in := partition.Trajectories{Lengths: lengths, Contexts: contexts}
		var p partition.Planner
		plan, err := p.Drain(in, workers)
		if err != nil {
			t.Fatal(err)
		}
		if want := lastDrained(plan.Workers, lengths, contexts, cost, share); plan.MakespanNS != want {
			t.Fatalf("plan %+v drains after %d", plan, want)
		}
		exact, err := p.Plan(in, workers)
		if err != nil {
			t.Fatal(err)
		}
		greedy, greedyNS, err := p.Greedy(in, workers)
		if err != nil || greedyNS != lastDrained(greedy, lengths, contexts, cost, share) {
			t.Fatalf("greedy %v says %d: %v", greedy, greedyNS, err)
		}
		least := min(greedyNS, lastDrained(exact.Workers, lengths, contexts, cost, share))
		if plan.MakespanNS > least {
			t.Fatalf("plan %+v, a candidate drains after %d", plan, least)
		}
		improved = improved || plan.MakespanNS < least
		sizes := make([]int, len(workers))
		for _, worker := range plan.Workers {
			sizes[worker]++
		}
		for _, g := range plan.Groups {
			if g.Size != sizes[g.Worker] {
				t.Fatalf("worker %d has %d trajectories: %+v", g.Worker, sizes[g.Worker], plan)
			}
		}
	})
	if !improved {
		t.Error("the search improved nothing")
	}
}

// TestEqualTrajectoriesAreBalanced: with nothing learned, workers get trajectories in turn.
func TestEqualTrajectoriesAreBalanced(t *testing.T) {
	curve, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: 10}, {Batch: 8, TokenNS: 20}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	equal := partition.Trajectories{Lengths: slices.Repeat([]int64{100}, 9)}
	plan, err := new(partition.Planner).Drain(equal, slices.Repeat([]partition.Worker{{Curve: curve}}, 3))
	if err != nil || !slices.Equal(plan.Workers, []int{0, 1, 2, 0, 1, 2, 0, 1, 2}) {
		t.Errorf("plan %+v: %v", plan, err)
	}
}

// TestLongestTimesDoNotOverflow: the bounds of the input keep all sums within 63 bits.
func TestLongestTimesDoNotOverflow(t *testing.T) {
	curve, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: 1}, {Batch: 2, TokenNS: partition.TokenMaxNS}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 1 << 12
	in := partition.Trajectories{Lengths: slices.Repeat([]int64{1 << 40}, n), Contexts: slices.Repeat([]int64{1 << 40}, n)}
	got, err := new(partition.Planner).DrainNS(in, []partition.Worker{{Curve: curve, ContextNS: partition.TokenMaxNS}}, make([]int, n))
	if err != nil || got < partition.TimeMaxNS {
		t.Errorf("drained after %d: %v", got, err)
	}
}

func TestDrainNSRefuses(t *testing.T) {
	curve, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: 10}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	workers := []partition.Worker{{Curve: curve}}
	for _, of := range [][]int{nil, {1}, {-1}, {0, 0}} {
		if _, err := new(partition.Planner).DrainNS(partition.Trajectories{Lengths: []int64{1}}, workers, of); err == nil {
			t.Errorf("workers %v are accepted", of)
		}
	}
}
