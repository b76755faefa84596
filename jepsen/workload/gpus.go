package workload

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/workload/witness"
)

var errNoGPUs = errors.New("the workload has no GPUs: set Env.GPUs, of agents with --simulated-gpus")

// models are what has to be in the memory of GPUs, so large that not all find
// room. The first is none.
var models = []struct {
	name        string
	memoryBytes uint64
	setUp       time.Duration
}{
	{},
	{"teacher", 40 << 30, 80 * time.Millisecond},
	{"critic", 30 << 30, 30 * time.Millisecond},
	{"reward", 0, 50 * time.Millisecond}, // takes all of it
}

// degrees are the numbers of GPUs that actions can use. Where it is several, the
// servers choose.
var degrees = [][]uint32{{1}, {2}, {4}, {8}, {1, 2}, {2, 4}, {1, 2, 4, 8}}

func gpus(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil || env.Cores == 0 {
		return errNoWitness
	}
	if env.GPUs == 0 {
		return errNoGPUs
	}
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		return (&submitter{worker: w, several: 40, next: w.newGPUJob}).step
	})
}

// newGPUJob works on GPUs, in less time on more of them. Half of the jobs say so, the
// others have it learned.
func (w *worker) newGPUJob() job {
	m, list := models[w.rand.IntN(len(models))], degrees[w.rand.IntN(len(degrees))]
	for int(list[len(list)-1]) > w.env.GPUs {
		list = degrees[w.rand.IntN(len(degrees))]
	}
	gpus := &rotav1.GpuDemand{Gpus: list, MemoryBytes: m.memoryBytes, Model: m.name}
	if m.setUp > 0 {
		gpus.Setup = durationpb.New(m.setUp)
	}
	j := job{
		resources: &rotav1.Resources{Cores: proto.Uint32(0), Gpus: gpus},
		work:      witness.Work{For: w.between(10*time.Millisecond, 60*time.Millisecond), Parallel: w.between(0, 240*time.Millisecond)},
	}
	if w.chance(30) {
		j.resources.Cores = proto.Uint32(1)
	}
	if w.chance(8) {
		j.work.Child = w.between(100*time.Millisecond, 10*time.Second)
	}
	switch {
	case w.chance(50):
		j.profile = &rotav1.Profile{
			Duration: durationpb.New(j.work.For + j.work.Parallel),
			Speedup:  &rotav1.Profile_SerialPpm{SerialPpm: uint32(1_000_000 * j.work.For / (j.work.For + j.work.Parallel))},
		}
	case m.name != "":
		j.class = "on-" + m.name
	}
	return j
}
