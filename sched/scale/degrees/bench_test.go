package degrees_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"rota/sched/place/partition"
	"rota/sched/scale/degrees"
)

// step is one of Heddle's size (§7.5), 64 GPUs with degrees 1 to 8, trajectories with a long tail.
func step(b fataler, trajectories int) drawn {
	random := rand.New(rand.NewPCG(1, 2))
	in := drawn{gpus: []int{1, 2, 4, 8}, budget: 64, lengths: make([]int64, trajectories)}
	for i := range in.lengths {
		in.lengths[i] = int64(200 / (0.005 + random.Float64()))
	}
	slices.SortFunc(in.lengths, func(a, b int64) int { return int(b - a) })
	for i, percent := range []int64{100, 60, 40, 25} {
		curve, err := partition.NewCurve([]partition.Point{
			{Batch: 1, TokenNS: 80_000 * percent}, {Batch: 16, TokenNS: 90_000 * percent},
			{Batch: 64, TokenNS: 130_000 * percent}, {Batch: 256, TokenNS: 300_000 * percent},
		}, 0)
		if err != nil {
			b.Fatal(err)
		}
		in.options = append(in.options, degrees.Option{GPUs: in.gpus[i], Worker: partition.Worker{Curve: curve}})
		times := make([]int64, trajectories+1)
		for n := 1; n < len(times); n++ {
			times[n] = curve.TokenNS(n)
		}
		in.cost = append(in.cost, times)
	}
	return in
}

func BenchmarkAllocate(b *testing.B) {
	in := step(b, 6400)
	var a degrees.Allocator
	for b.Loop() {
		if _, err := a.Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAnnealing is Heddle's Algorithm 2 on a smaller step, because it takes seconds: each
// change costs a dynamic programme.
func BenchmarkAnnealing(b *testing.B) {
	in := step(b, 400)
	var best int64
	for b.Loop() {
		baseline := annealing{lengths: in.lengths, gpus: in.gpus, cost: in.cost, budget: in.budget, cooling: 0.97, random: rand.New(rand.NewPCG(1, 0))}
		best = baseline.best()
	}
	got, err := new(degrees.Allocator).Allocate(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(best)/float64(got.MakespanNS), "makespan/exact")
}

func BenchmarkChoose(b *testing.B) {
	in := step(b, 6400)
	var a degrees.Allocator
	for b.Loop() {
		if _, err := a.Choose(partition.Trajectories{Lengths: in.lengths}, in.options, in.budget, degrees.Doubt); err != nil {
			b.Fatal(err)
		}
	}
}
