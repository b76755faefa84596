package turns

import (
	"math/bits"
	"slices"

	"rota/fsm/state"
	"rota/internal/sim"
)

// TraceParams say what a trace is generated from. The same ones give the same trace on
// every machine.
type TraceParams struct {
	Seed uint64
	// GPUs of the cluster that it is for.
	GPUs int64
	// Hours in which jobs arrive.
	Hours int64
	// LoadPPM is the GPU time that the jobs take alone, as a part of what the cluster
	// has in these hours.
	LoadPPM int64
	// Compress divides hours and steps: the jobs, their sizes and how their durations
	// and arrivals relate to one another stay as they are. A job has at least one step.
	Compress int64
}

// DefaultTrace is three months of the paper's cluster.
func DefaultTrace() TraceParams {
	return TraceParams{Seed: 1, GPUs: 2048, Hours: 91 * 24, LoadPPM: 2 * million, Compress: 1}
}

// Job is one of a trace.
type Job struct {
	Model     *Model
	ArrivesNS int64
	Steps     int64
}

// DurationNS returns how long the job takes alone.
func (j *Job) DurationNS() int64 { return j.Steps * j.Model.CycleNS }

// mixPPM is the part of the GPU time that each model has. With durations alike it is
// what 70 % small jobs, 20 % medium and 10 % large ones come to: many try things out, and
// few are large (assumed).
var mixPPM = []int64{205_000, 421_000, 374_000}

// stepsTable are quantiles of the steps of a job, straight lines between them: those of a
// log-normal distribution with a median of 100 and a standard deviation of 1 of the
// logarithm, cut at 10 and 1,500. The paper's runs have 100 steps; that few jobs are far
// longer than most is what all published traces of training clusters show (assumed).
var stepsTable = [][2]int64{
	{0, 10}, {50_000, 19}, {100_000, 28}, {250_000, 51}, {500_000, 100}, {750_000, 196},
	{900_000, 360}, {950_000, 518}, {990_000, 1024}, {1_000_000, 1500},
}

// hourWeights are how many jobs arrive in an hour of a day, relative to the others:
// people start them at work, from 9 to 21, and a third as many at other times and at
// weekends (assumed). Days 5 and 6 of a week are the weekend.
func hourWeight(hour int64) int64 {
	if day := hour / 24 % 7; day >= 5 {
		return 1
	}
	if of := hour % 24; of >= 9 && of < 21 {
		return 3
	}
	return 1
}

// Names of what is drawn.
const (
	drawSteps = 1 + iota
	drawArrival
)

// Generate makes a trace, in the order of arrival. Jobs are added until they come to the
// load. The next one is of the model that is furthest behind its part of the GPU time, so
// that the mix is the same in every trace; how many steps it has and when it arrives are
// drawn by its number. So the jobs of a lower load are among those of a higher one.
func Generate(p TraceParams) []Job {
	draws := sim.Draws(p.Seed)
	hours := newHours(p.Hours)
	work := make([]int64, len(Models)) // GPU seconds
	most := state.MulDiv(uint64(p.GPUs)*uint64(p.Hours)*3600, uint64(p.LoadPPM), million)
	var jobs []Job
	for sum := int64(0); uint64(sum) < most; {
		number, m := int64(len(jobs)), behind(work)
		model := &Models[m]
		steps, arrival := draws.Of(drawSteps, number), draws.Of(drawArrival, number)
		j := Job{Model: model, Steps: quantile(stepsTable, steps.N(million)), ArrivesNS: hours.at(&arrival)}
		gpuSeconds := model.GPUs() * (j.DurationNS() / second)
		work[m] += gpuSeconds
		sum += gpuSeconds
		jobs = append(jobs, j)
	}
	for i := range jobs {
		jobs[i].ArrivesNS /= p.Compress
		jobs[i].Steps = max(1, (jobs[i].Steps+p.Compress/2)/p.Compress)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return compare(a.ArrivesNS, b.ArrivesNS) })
	return jobs
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// behind returns the model whose work is least, relative to its part of all.
func behind(work []int64) (least int) {
	for m := range work {
		// work[m]/mix[m] < work[least]/mix[least]
		aHi, aLo := bits.Mul64(uint64(work[m]), uint64(mixPPM[least]))
		bHi, bLo := bits.Mul64(uint64(work[least]), uint64(mixPPM[m]))
		if aHi < bHi || aHi == bHi && aLo < bLo {
			least = m
		}
	}
	return least
}

// quantile returns the value of a table at ppm.
func quantile(table [][2]int64, ppm int64) int64 {
	i := 1
	for i < len(table)-1 && table[i][0] <= ppm {
		i++
	}
	a, b := table[i-1], table[i]
	return a[1] + (b[1]-a[1])*(ppm-a[0])/(b[0]-a[0])
}

// hours are the weights of all hours, each with those before it.
type hours []int64

func newHours(n int64) hours {
	sums, sum := make(hours, n), int64(0)
	for h := range n {
		sum += hourWeight(h)
		sums[h] = sum
	}
	return sums
}

// at draws a time: an hour by its weight, and any moment of it.
func (h hours) at(d *sim.Draw) int64 {
	x := d.N(h[len(h)-1])
	i, _ := slices.BinarySearch(h, x+1)
	return int64(i)*hour + d.N(hour)
}
