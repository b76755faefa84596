package turns

import (
	"context"
	"fmt"
	"math"

	"rota/internal/sim"
)

// PackingParams say what is packed.
type PackingParams struct {
	Seed uint64
	// Jobs are numbers of jobs on one group.
	Jobs []int64
	// SetUps are what a change of deployment costs.
	SetUps []SetUp
	// Steps that are counted, of each job, after Warm ones.
	Steps, Warm int64
	JitterPPM   int64
	// Turns that a step takes: one, which has all its operations, or one for each.
	Turns int
}

// SetUpMax is what the paper reports of 30B: 19.0 s to load the state of its optimizer.
const SetUpMax = 19 * second

// DefaultPacking are up to six jobs, and set-ups up to what the paper reports.
func DefaultPacking() PackingParams {
	p := PackingParams{Seed: 1, Jobs: []int64{1, 2, 3, 4, 5, 6}, Steps: 100, Warm: 10, JitterPPM: 20_000, Turns: 1}
	for _, s := range []int64{0, 5, 10, 15, 19} {
		p.SetUps = append(p.SetUps, SetUp{s * second, false})
	}
	for _, s := range []int64{5, 10, 15, 19} {
		p.SetUps = append(p.SetUps, SetUp{s * second, true})
	}
	return p
}

// Packed is what became of some jobs on one group.
type Packed struct {
	Model *Model
	SetUp SetUp
	Jobs  int64
	// Admitted is how many of them got a place. The others wait, and are not counted.
	Admitted int64
	// StepNS is the mean of a step, and AloneNS that of a job that has the group for
	// itself, with the same luck. WorstNS is the mean of the job that is slowest.
	StepNS, AloneNS, WorstNS int64
	// Stalled is the part of the turns that waited for a set-up.
	StalledPPM int64
}

// SlowdownPPM is by how much a step is longer than alone.
func (p *Packed) SlowdownPPM() int64 { return part(p.StepNS-p.AloneNS, p.AloneNS) }

// CostPPM is how many GPU-hours a step takes, compared with split-async: a part of the
// training group, and the rollout's own GPUs.
func (p *Packed) CostPPM() int64 {
	shared := p.Model.TrainGPUs + p.Admitted*p.Model.RolloutGPUs
	return part(shared*(p.StepNS/ms), p.Admitted*p.Model.GPUs()*(p.AloneNS/ms))
}

// SavingPPM is what is saved of the GPU-hours that a step takes with split-async.
func (p *Packed) SavingPPM() int64 { return million - p.CostPPM() }

// part returns a/b in ppm. a may be negative.
func part(a, b int64) int64 {
	if b == 0 {
		return 0
	}
	return a*1000/b*1000 + a*1000%b*1000/b
}

// Baseline is what a step costs without rota.
type Baseline struct {
	Model *Model
	SetUp int64
	// GPU milliseconds of a step: split-async, and colocated between two bounds.
	SplitAsync, ColocatedLeast, ColocatedMost int64
}

// Of the peak throughput of a GPU, what is reached on the rollout's own GPUs and on
// those of the training (Figure 7c, for 235B), in ppm.
const (
	throughputOwn       = 750_300
	throughputColocated = 527_400
)

// NewBaseline computes what the baselines cost when a set-up takes so long.
func NewBaseline(m *Model, setUp int64) Baseline {
	train := m.HeldNS() + setUp
	least := m.RolloutNS() / ms * m.RolloutGPUs * throughputOwn / throughputColocated
	return Baseline{
		Model: m, SetUp: setUp,
		SplitAsync:     m.GPUs() * (m.CycleNS / ms),
		ColocatedLeast: least + m.TrainGPUs*(train/ms),
		ColocatedMost:  m.TrainGPUs * ((m.RolloutNS() + train) / ms),
	}
}

// Packing lets all numbers of jobs share a group, for each model and set-up. The
// context ends it between two of them.
func Packing(ctx context.Context, p PackingParams) (all []Packed, err error) {
	for i := range Models {
		alone, err := Pack(&Models[i], SetUp{}, 1, p)
		if err != nil {
			return nil, err
		}
		for _, setUp := range p.SetUps {
			for _, n := range p.Jobs {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				x, err := Pack(&Models[i], setUp, n, p)
				if err != nil {
					return nil, err
				}
				x.AloneNS = alone.StepNS
				all = append(all, x)
			}
		}
	}
	return all, nil
}

// Pack lets some jobs of a model share one group.
func Pack(model *Model, setUp SetUp, jobs int64, p PackingParams) (Packed, error) {
	loop := &sim.Loop{}
	m := newMachine(loop, cluster{policy: spread, groups: 1, nodes: model.Nodes()}, setUp)
	out := Packed{Model: model, SetUp: setUp, Jobs: jobs}
	left, sum := int64(0), int64(0)
	for i := range jobs {
		w := &worker{
			m: m, model: model, name: fmt.Sprintf("j%d", i), turns: p.Turns, steps: math.MaxInt64,
			draws: sim.Draws(p.Seed), luck: uint64(i), jitterPPM: p.JitterPPM,
		}
		if m.serial() > 0 {
			// A rollout may end earlier than most, and the group is to be ready then.
			w.lead = m.serial() + model.RolloutNS()/million*p.JitterPPM
		}
		began := int64(0)
		w.each = func(step int64) {
			switch step {
			case p.Warm:
				began = loop.Now()
			case p.Warm + p.Steps:
				took := (loop.Now() - began) / p.Steps
				sum += took
				out.WorstNS = max(out.WorstNS, took)
				// Until all have been counted, nobody leaves.
				if left--; left == 0 {
					loop.Halt()
				}
			}
		}
		if m.submit(w.job(), w.begin) {
			out.Admitted++
			left++
		}
	}
	const year = 366 * 24 * hour
	loop.Run(year)
	if m.err != nil {
		return out, m.err
	}
	if left > 0 || out.Admitted == 0 {
		return out, fmt.Errorf("%s: %d of %d jobs did not end within a year", model.Name, left, jobs)
	}
	out.StepNS = sum / out.Admitted
	out.AloneNS = out.StepNS
	out.StalledPPM = part(m.waited, m.granted)
	return out, nil
}

// Values of rota.v1.PlacementPolicy.
const (
	spread = 1 + iota
	pack
	isolated
)
