package turns

import (
	"context"
	"reflect"
	"slices"
	"testing"
)

// tiny is two days of a small cluster.
func tiny() ReplayParams {
	p := DefaultReplay()
	p.Trace.GPUs, p.Trace.Hours, p.Trace.LoadPPM, p.Trace.Compress = 512, 96, 1_500_000, 8
	return p
}

// queue returns when a queue with so many servers for the jobs of a model is empty, and
// what each waited as a part of its duration, if all take what they take alone.
func queue(jobs []Job, m *Model, servers int64) (end int64, delays []int64) {
	free := make([]int64, servers)
	for i := range jobs {
		j := &jobs[i]
		if j.Model != m {
			continue
		}
		first := slices.Index(free, slices.Min(free))
		start := max(j.ArrivesNS, free[first])
		free[first] = start + j.DurationNS()
		end = max(end, free[first])
		delays = append(delays, delayPPM(start-j.ArrivesNS, j.DurationNS()))
	}
	return end, delays
}

// TestIsolatedIsAQueue: on the real state machine, without luck, jobs that share nothing
// begin and end when a queue with a server for each group says.
func TestIsolatedIsAQueue(t *testing.T) {
	p := tiny()
	p.JitterPPM, p.SetUp = 0, SetUp{}
	r, err := Replay(context.Background(), "isolated", p, 1)
	if err != nil {
		t.Fatal(err)
	}
	jobs := Generate(p.Trace)
	var delays []int64
	end := int64(0)
	for _, l := range r.Layouts {
		last, waited := queue(jobs, l.Model, l.Groups)
		end = max(end, last)
		delays = append(delays, waited...)
	}
	slices.Sort(delays)
	if got, want := r.MakespanNS, end-jobs[0].ArrivesNS; got != want {
		t.Errorf("the makespan is %d, want %d", got, want)
	}
	if !slices.Equal(r.DelayPPM, delays) || r.SlowerPPM != 0 || len(delays) < 50 {
		t.Errorf("%d jobs are slower by %d ppm; the median delay is %d, want %d", r.Jobs, r.SlowerPPM, r.Quantile(million/2), delays[len(delays)/2])
	}
}

// TestReplayBound reports the least makespan that sharing could have: all places of all
// groups are taken as soon as there is a job for them, and nobody is slowed down.
// docs/evaluation.md has these figures.
func TestReplayBound(t *testing.T) {
	for _, gpus := range []int64{1024, 2048} {
		for _, load := range []int64{1_000_000, 1_500_000, 1_750_000, 2_000_000, 2_500_000, 3_000_000} {
			p := DefaultReplay().Trace
			p.GPUs, p.LoadPPM = gpus, load
			alone, shared := bound(t, "isolated", p), bound(t, "spread", p)
			t.Logf("%d GPUs, load %d %%: isolated %.1f days, sharing at least %.1f, which is %.1f %%",
				gpus, load/10_000, float64(alone)/float64(24*hour), float64(shared)/float64(24*hour), percentOf(shared, alone))
			if shared*2 > alone && load >= 2_000_000 {
				t.Errorf("%d GPUs: sharing could not halve the makespan", gpus)
			}
		}
	}
}

// bound is the makespan of queues with as many servers as there are places.
func bound(t *testing.T, policy string, p TraceParams) (end int64) {
	jobs := Generate(p)
	for _, l := range Layouts(policy, p.GPUs) {
		last, _ := queue(jobs, l.Model, l.Groups*l.Jobs)
		t.Logf("%s, %d GPUs, load %d %%: %s has %d places, and is done after %.1f days", policy, p.GPUs, p.LoadPPM/10_000,
			l.Model.Name, l.Groups*l.Jobs, float64(last-jobs[0].ArrivesNS)*float64(p.Compress)/float64(24*hour))
		end = max(end, last)
	}
	last := slices.MaxFunc(jobs, func(a, b Job) int { return compare(a.ArrivesNS+a.DurationNS(), b.ArrivesNS+b.DurationNS()) })
	t.Logf("%d GPUs, load %d %%: the last job to end, if none waited, does so after %.1f days", p.GPUs, p.LoadPPM/10_000,
		float64(last.ArrivesNS+last.DurationNS()-jobs[0].ArrivesNS)*float64(p.Compress)/float64(24*hour))
	return (end - jobs[0].ArrivesNS) * p.Compress
}

func percentOf(a, b int64) float64 { return 100 * float64(a) / float64(b) }

// TestAReplayEnds: under every policy all jobs are done, each has waited once, and the
// same seed gives the same result. Those that share are done sooner.
func TestAReplayEnds(t *testing.T) {
	makespan := int64(0)
	for _, policy := range Policies {
		r, err := Replay(context.Background(), policy, tiny(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.DelayPPM) != r.Jobs || r.Jobs == 0 || r.DelayPPM[0] < 0 {
			t.Errorf("%s: %d of %d jobs got a place", policy, len(r.DelayPPM), r.Jobs)
		}
		if policy == "isolated" {
			makespan = r.MakespanNS
		} else if r.MakespanNS >= makespan {
			t.Errorf("%s takes %d s, isolated %d", policy, r.MakespanNS/second, makespan/second)
		}
		if (policy == "spread+backfill") != (r.Backfilled > 0) {
			t.Errorf("%s: %d jobs began without a reservation", policy, r.Backfilled)
		}
		again, err := Replay(context.Background(), policy, tiny(), 1)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%s: the same seed gives another result", policy)
		}
	}
}

// TestLayoutsAreOfTheSameGPUs: no policy has more than there are, and none leaves as many
// as a group needs.
func TestLayoutsAreOfTheSameGPUs(t *testing.T) {
	for _, policy := range Policies {
		left := int64(1024)
		for _, l := range Layouts(policy, left) {
			left -= l.GPUs()
			if l.Groups == 0 {
				t.Errorf("%s has no group of %s", policy, l.Model.Name)
			}
		}
		if left < 0 || left >= 16 {
			t.Errorf("%s leaves %d GPUs", policy, left)
		}
	}
	if l := Layouts("isolated", 1024)[0]; l.GPUs() != 10*l.Groups {
		t.Errorf("a group of 7B takes %d GPUs", l.each())
	}
}

// TestACanceledReplayEnds too.
func TestACanceledReplayEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Replay(ctx, "spread", tiny(), 1); err == nil {
		t.Error("a canceled replay passes")
	}
}
