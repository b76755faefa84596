package turns

import (
	"reflect"
	"slices"
	"testing"
)

// TestTheTraceIsTheSameEveryTime: the same parameters give the same jobs, and others
// give others.
func TestTheTraceIsTheSameEveryTime(t *testing.T) {
	p := DefaultTrace()
	a := Generate(p)
	if !reflect.DeepEqual(a, Generate(p)) {
		t.Error("the same parameters give other jobs")
	}
	p.Seed = 2
	if reflect.DeepEqual(a, Generate(p)) {
		t.Error("another seed gives the same jobs")
	}
	// As published: what docs say of the trace depends on these.
	first := a[0]
	if len(a) != 18_360 || first.Model.Name != "30b" || first.Steps != 195 || first.ArrivesNS != 1_512_455_049_725 {
		t.Errorf("%d jobs, the first: %s, %d steps, arrives %d", len(a), first.Model.Name, first.Steps, first.ArrivesNS)
	}
}

// TestTheTraceIsDistributedAsItSays checks load, mix, steps and arrivals.
func TestTheTraceIsDistributedAsItSays(t *testing.T) {
	p := DefaultTrace()
	p.LoadPPM = 10 * million
	jobs := Generate(p)
	work, sum := map[string]int64{}, int64(0)
	var steps []int64
	busy, last := 0, int64(0)
	for i := range jobs {
		j := &jobs[i]
		gpu := j.Model.GPUs() * (j.DurationNS() / second)
		work[j.Model.Name] += gpu
		sum += gpu
		steps = append(steps, j.Steps)
		if hourWeight(j.ArrivesNS/hour) == 3 {
			busy++
		}
		if j.ArrivesNS < last || j.ArrivesNS >= p.Hours*hour {
			t.Fatalf("job %d arrives at %d, the one before at %d", i, j.ArrivesNS, last)
		}
		last = j.ArrivesNS
	}
	near := func(what string, got, want, within int64) {
		t.Helper()
		if got < want-within || got > want+within {
			t.Errorf("%s is %d, want %d within %d", what, got, want, within)
		}
	}
	all := p.GPUs * p.Hours * 3600 * 10
	near("the work in ppm of the load", int64(float64(sum)/float64(all)*million), million, 2_000)
	for i, m := range Models {
		near("the part of "+m.Name, int64(float64(work[m.Name])/float64(sum)*million), mixPPM[i], 5_000)
	}
	slices.Sort(steps)
	n := len(steps)
	near("the median of the steps", steps[n/2], 100, 5)
	near("the first quartile", steps[n/4], 51, 4)
	near("the third quartile", steps[n*3/4], 196, 12)
	near("the 90th percentile", steps[n*9/10], 360, 25)
	if steps[0] < 10 || steps[n-1] > 1500 {
		t.Errorf("steps are %d to %d", steps[0], steps[n-1])
	}
	// 5 days of 12 hours at 3 are 180 of the 180 + 108 of a week.
	near("the part of jobs that arrive at work", int64(busy*million/n), 180*million/288, 15_000)
}

// TestALowerLoadIsAPart: all jobs of a lower load are among those of a higher.
func TestALowerLoadIsAPart(t *testing.T) {
	p := DefaultTrace()
	p.LoadPPM = million
	few := Generate(p)
	p.LoadPPM = 2 * million
	many := Generate(p)
	i := 0
	for k := range many {
		if i < len(few) && reflect.DeepEqual(few[i], many[k]) {
			i++
		}
	}
	if i != len(few) || len(many) <= len(few) {
		t.Errorf("%d of %d jobs are among %d", i, len(few), len(many))
	}
}

// TestCompressedItIsTheSame: times and steps are divided, and nothing else changes.
func TestCompressedItIsTheSame(t *testing.T) {
	p := DefaultTrace()
	long := Generate(p)
	p.Compress = 8
	short := Generate(p)
	if len(short) != len(long) {
		t.Fatalf("%d jobs, compressed %d", len(long), len(short))
	}
	for i := range long {
		if d := short[i].Steps*8 - long[i].Steps; short[i].Model != long[i].Model || short[i].ArrivesNS != long[i].ArrivesNS/8 || d > 4 || d < -4 {
			t.Fatalf("job %d is %+v, compressed %+v", i, long[i], short[i])
		}
	}
}

// TestTablesOfThePaper computes what the paper derives from its tables.
func TestTablesOfThePaper(t *testing.T) {
	for i, want := range []struct{ gpus, bubblePPM int64 }{{10, 801_000}, {72, 706_700}, {128, 811_100}} {
		m := &Models[i]
		bubble := million - m.HeldNS()*million/m.CycleNS
		if m.GPUs() != want.gpus || bubble < want.bubblePPM-150 || bubble > want.bubblePPM+150 {
			t.Errorf("%s: %d GPUs, idle for %d ppm of its cycle, want %+v", m.Name, m.GPUs(), bubble, want)
		}
	}
}
