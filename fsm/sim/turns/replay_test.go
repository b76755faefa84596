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
		servers := make([]int64, l.Groups)
		for i := range jobs {
			j := &jobs[i]
			if j.Model != l.Model {
				continue
			}
			first := slices.Index(servers, slices.Min(servers))
			start := max(j.ArrivesNS, servers[first])
			servers[first] = start + j.DurationNS()
			end = max(end, servers[first])
			delays = append(delays, delayPPM(start-j.ArrivesNS, j.DurationNS()))
		}
	}
	slices.Sort(delays)
	if got, want := r.MakespanNS, end-jobs[0].ArrivesNS; got != want {
		t.Errorf("the makespan is %d, want %d", got, want)
	}
	if !slices.Equal(r.DelayPPM, delays) || r.SlowerPPM != 0 || len(delays) < 50 {
		t.Errorf("%d jobs are slower by %d ppm; the median delay is %d, want %d", r.Jobs, r.SlowerPPM, r.Quantile(million/2), delays[len(delays)/2])
	}
}

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
		if left < 0 || left >= 18 {
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
