package partition_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"rota/sched/place/partition"
)

// drawnStep is a step of Heddle's size (§7.5): 6,400 trajectories with a long tail.
func drawnStep(n int) []int64 {
	random := rand.New(rand.NewPCG(1, 2))
	lengths := make([]int64, n)
	for i := range lengths {
		lengths[i] = int64(200 / (0.005 + random.Float64()))
	}
	slices.SortFunc(lengths, func(a, b int64) int { return int(b - a) })
	return lengths
}

// points rise slowly first and then with the batch, as those of an engine do.
func points(percent int64) []partition.Point {
	return []partition.Point{
		{Batch: 1, TokenNS: 80_000 * percent}, {Batch: 16, TokenNS: 90_000 * percent},
		{Batch: 64, TokenNS: 130_000 * percent}, {Batch: 256, TokenNS: 300_000 * percent},
	}
}

func step(b *testing.B, n int, percents ...int64) (workers []partition.Worker, cost [][]int64) {
	for i := range n {
		curve, err := partition.NewCurve(points(percents[i%len(percents)]), 0)
		if err != nil {
			b.Fatal(err)
		}
		workers = append(workers, partition.Worker{Curve: curve})
		times := make([]int64, 6401)
		for n := 1; n < len(times); n++ {
			times[n] = curve.TokenNS(n)
		}
		cost = append(cost, times)
	}
	return workers, cost
}

func BenchmarkPlan(b *testing.B) {
	lengths := drawnStep(6400)
	for _, c := range []struct {
		name     string
		workers  int
		percents []int64
	}{
		{"one kind", 64, []int64{100}}, {"two kinds", 64, []int64{100, 60}},
		{"four kinds in all orders", 40, []int64{100, 60, 40, 25}}, {"four kinds in two orders", 64, []int64{100, 60, 40, 25}},
	} {
		b.Run(c.name, func(b *testing.B) {
			workers, _ := step(b, c.workers, c.percents...)
			var p partition.Planner
			for b.Loop() {
				if _, err := p.Plan(partition.Trajectories{Lengths: lengths}, workers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLiteral is Heddle's dynamic programme on the same step; it takes seconds.
func BenchmarkLiteral(b *testing.B) {
	lengths := drawnStep(6400)
	workers, cost := step(b, 64, 100)
	for b.Loop() {
		want := literalDP(lengths, cost)
		plan, err := new(partition.Planner).Plan(partition.Trajectories{Lengths: lengths}, workers)
		if err != nil || plan.MakespanNS != want {
			b.Fatalf("makespan %d, want %d: %v", plan.MakespanNS, want, err)
		}
	}
}

func BenchmarkDrain(b *testing.B) {
	lengths := drawnStep(6400)
	workers, _ := step(b, 64, 100, 60)
	var p partition.Planner
	for b.Loop() {
		if _, err := p.Drain(partition.Trajectories{Lengths: lengths}, workers); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRebalance is what a leader does when predictions have changed.
func BenchmarkRebalance(b *testing.B) {
	lengths := drawnStep(6400)
	workers, _ := step(b, 64, 100, 60)
	running := make([]partition.Running, len(lengths))
	for i := range running {
		running[i] = partition.Running{Home: i % len(workers), Movable: i%4 == 0, MoveNS: 1_000_000}
	}
	var p partition.Planner
	for b.Loop() {
		if _, err := p.Rebalance(partition.Trajectories{Lengths: lengths}, running, workers, 16); err != nil {
			b.Fatal(err)
		}
	}
}
