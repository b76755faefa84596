package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// TestAllWorkloadsTogether runs everything against a real cluster without faults
// and looks at what is recorded: checkers can only find what is there.
func TestAllWorkloadsTogether(t *testing.T) {
	c := start(t)
	const duration = 5 * time.Second
	begin := cpuTime(t)
	run(t, c.env, duration, All())
	loaded, spent := len(c.env.Record.Record().Ops), cpuTime(t)-begin
	verbs := []history.Verb{history.Submit, history.Get, history.GetStale, history.Cancel, history.OpenTrajectory,
		history.CloseTrajectory, history.GetTrajectory, history.Drain, history.GetNode, history.List, history.Status,
		history.CreateQuota, history.GetQuota, history.CreateGroup, history.SubmitJob, history.GetJob, history.Acquire,
		history.CreateRollout, history.OpenMember, history.PutSample, history.GetBatch}
	// On a busy machine a rare call may not come up in so short a time.
	for again := 0; again < 10 && len(missing(c.env.Record.Record(), verbs)) > 0; again++ {
		run(t, c.env, duration, All())
	}
	rec := settle(t, c.env)
	t.Logf("%.0f calls a second for %.0f%% of a core", float64(loaded)/duration.Seconds(), 100*spent.Seconds()/duration.Seconds())
	unknown := checkCalls(t, rec, verbs...)
	if unknown > len(rec.Ops)/10 {
		t.Errorf("%d of %d calls have an unknown outcome without any fault", unknown, len(rec.Ops))
	}
	checkActions(t, rec)
	checkEvents(t, rec)
	checkScarce(t, rec)
	checkTurns(t, rec)
	checkEngines(t, rec)
	checkBatches(t, rec)
}

// checkBatches: trainers got samples, as they were put.
func checkBatches(t *testing.T, rec *history.Record) {
	t.Helper()
	given := 0
	for _, op := range rec.Ops {
		for _, s := range op.Batch {
			if given++; s.Reward != float64(s.Trajectory)+0.5 {
				t.Errorf("%+v", s)
			}
		}
	}
	if given == 0 {
		t.Error("no trainer got a sample")
	}
}

// checkEngines: there were engines, those that answered did so on the GPUs of the action that called
// them, and none is left.
func checkEngines(t *testing.T, rec *history.Record) {
	t.Helper()
	answers, awake, alive := map[string]int{}, 0, 0
	for _, x := range rec.Executions {
		if x.Answer == nil {
			continue
		}
		if answers[x.Answer.Model]++; x.Answer.Model != x.Asked.Model || !slices.Equal(x.Answer.GPUs, x.GPUs) {
			t.Errorf("execution: %+v, answered %+v", x, *x.Answer)
		}
	}
	for _, s := range rec.Servings {
		if s.Awake {
			awake++
		} else {
			alive++
		}
		if s.End == 0 || s.Declaration == "" || len(s.GPUs) == 0 {
			t.Errorf("engine: %+v", s)
		}
	}
	t.Logf("answers by model: %v; %d engines, which held memory %d times", answers, alive, awake)
	// On a busy machine few actions get that far in so short a time.
	if alive == 0 || awake == 0 {
		t.Error("no engine was ever awake")
	}
}

// checkTurns: turns were asked for, and all have ended. On a busy machine few of them are
// held in so short a time, or none.
func checkTurns(t *testing.T, rec *history.Record) {
	t.Helper()
	ends := map[string]int{}
	for _, turn := range rec.Turns {
		ends[turn.State]++
	}
	t.Logf("%d turns held; how all ended: %v", len(rec.Holdings), ends)
	if len(rec.Turns) == 0 || ends["HELD"]+ends["WAITING"] > 0 {
		t.Error("no turn was asked for, or not all have ended")
	}
	for _, h := range rec.Holdings {
		if h.Turn == 0 || h.Token == 0 || h.Group == "" || h.End < h.Start {
			t.Errorf("holding: %+v", h)
		}
	}
}

// checkScarce: executions had keys of quotas, and chunks of GPUs of several sizes.
func checkScarce(t *testing.T, rec *history.Record) {
	t.Helper()
	quotas, chunks := map[string]int{}, map[int]int{}
	for _, x := range rec.Executions {
		for _, use := range x.Uses {
			if quotas[use.Quota]++; use.Key == 0 || use.Units == 0 {
				t.Errorf("execution: %+v", x)
			}
		}
		chunks[len(x.GPUs)]++
	}
	t.Logf("quotas: %v, GPUs: %v", quotas, chunks)
	for _, q := range providers {
		if quotas[q.Name] == 0 && q.Name != trial { // operators may delete that one at once
			t.Errorf("nothing used quota %s", q.Name)
		}
	}
	if len(chunks) < 3 { // none is one of the sizes
		t.Errorf("executions by their number of GPUs: %v", chunks)
	}
}

// TestAsked: what the witness is told that an attempt may be given is what the
// resources say.
func TestAsked(t *testing.T) {
	core := func(n uint32) *uint32 { return &n }
	for _, c := range []struct {
		resources *rotav1.Resources
		want      history.Asked
	}{
		{&rotav1.Resources{Cores: core(2)}, history.Asked{Cores: []int{2}}},
		{&rotav1.Resources{Cores: core(2), MaxCores: 4}, history.Asked{Cores: []int{2, 3, 4}}},
		{&rotav1.Resources{AllowedCores: []uint32{1, 4}}, history.Asked{Cores: []int{1, 4}}},
		{
			&rotav1.Resources{Cores: core(0), Gpus: &rotav1.GpuDemand{Gpus: []uint32{2, 8}}, Quotas: []*rotav1.QuotaDemand{{Quota: "q", Units: 3}}},
			history.Asked{Cores: []int{0}, GPUs: []int{2, 8}, Quotas: []history.Use{{Quota: "q", Units: 3}}},
		},
	} {
		if got := asked(c.resources); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v: %+v, want %+v", c.resources, got, c.want)
		}
	}
}

// TestOutcomesAreRightWhileTheLeaderIsFrozen: what was recorded as failed has not
// happened. A leader that is frozen and comes back is what makes that hard: it
// answers calls that others have given up, and has proposals that are lost.
func TestOutcomesAreRightWhileTheLeaderIsFrozen(t *testing.T) {
	c := start(t)
	var faults sync.WaitGroup
	faults.Go(func() {
		time.Sleep(1500 * time.Millisecond)
		c.freezeLeader(t, 2500*time.Millisecond)
	})
	run(t, c.env, 6*time.Second, slices.DeleteFunc(All(), func(w Workload) bool { return w.Name == "drains" }))
	faults.Wait()
	rec := settle(t, c.env)
	if unknown := checkCalls(t, rec, history.Submit, history.Get, history.Cancel); unknown == 0 {
		t.Error("no call had an unknown outcome: was the leader frozen?")
	}
	checkActions(t, rec)
	checkEvents(t, rec)
}

// run runs workloads at their own rates.
func run(t *testing.T, env *Env, duration time.Duration, workloads []Workload) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var all sync.WaitGroup
	for _, w := range workloads {
		all.Go(func() {
			if err := w.Run(ctx, env, w.Rate); err != nil {
				t.Errorf("%s: %v", w.Name, err)
			}
		})
	}
	all.Wait()
}

// settle brings the cluster to rest and returns the record of all.
func settle(t *testing.T, env *Env) *history.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	final, healing, err := Settle(ctx, env, env.Record.Now())
	if err != nil {
		t.Fatalf("%v: %q", err, healing.Left)
	}
	if healing.Settled < healing.Stopped {
		t.Errorf("healing: %+v", healing)
	}
	hashes, err := Hashes(ctx, env)
	if err != nil || len(hashes) != 3 || hashes[1].Hash != hashes[0].Hash || hashes[2].Hash != hashes[0].Hash {
		t.Errorf("hashes: %+v, %v", hashes, err)
	}
	rec := env.Record.Record()
	rec.Final, rec.Executions, rec.Servings = final, env.Witness.Executions(), env.Witness.Servings()
	t.Logf("%d executions, %d events, %d samples, settled in %v",
		len(rec.Executions), len(rec.Watch), len(rec.Samples), time.Duration(healing.Settled-healing.Stopped))
	return rec
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// checkCalls: these verbs were called with success.
func checkCalls(t *testing.T, rec *history.Record, verbs ...history.Verb) (unknown int) {
	t.Helper()
	ok, others := map[history.Verb]int{}, map[string]int{}
	replayed := 0
	for _, op := range rec.Ops {
		switch op.Outcome {
		case history.OK:
			ok[op.Verb]++
		case history.Unknown:
			unknown++
			fallthrough
		default:
			others[fmt.Sprintf("%s %s: %.60s", op.Verb, op.Outcome, op.Error)]++
		}
		if op.Replayed {
			replayed++
		}
	}
	t.Logf("with success: %v; others: %v; replayed: %d", ok, others, replayed)
	for _, v := range missing(rec, verbs) {
		t.Errorf("no %s was recorded with success", v)
	}
	if replayed == 0 {
		t.Error("no request was repeated")
	}
	return unknown
}

// missing are those of verbs of which no call succeeded.
func missing(rec *history.Record, verbs []history.Verb) []history.Verb {
	return slices.DeleteFunc(slices.Clone(verbs), func(v history.Verb) bool {
		return slices.ContainsFunc(rec.Ops, func(op history.Op) bool { return op.Verb == v && op.Outcome == history.OK })
	})
}

// checkActions: what was acknowledged has ended, what succeeded was seen by the
// witness to complete, and what exists or ran was not recorded as failed.
func checkActions(t *testing.T, rec *history.Record) {
	t.Helper()
	final := map[uint64]history.Action{}
	for _, a := range rec.Final {
		final[a.ID] = a
	}
	possible := map[string]bool{} // requests that may have been accepted
	for _, op := range rec.Ops {
		if op.Verb != history.Submit || op.Outcome == history.Fail {
			continue
		}
		possible[op.RequestID] = true
		for _, id := range op.IDs {
			if a := final[id]; !strings.HasPrefix(a.Name, op.RequestID+"/") {
				t.Errorf("request %s was acknowledged as action %d, which is %+v", op.RequestID, id, a)
			}
		}
	}
	complete, unserved := map[uint64]bool{}, map[uint64]bool{}
	for _, e := range rec.Executions {
		unserved[e.Action] = e.Unserved
		if complete[e.Action] = complete[e.Action] || e.Complete; !possible[e.RequestID] || e.End == 0 {
			t.Errorf("execution: %+v", e)
		}
	}
	states := map[string]int{}
	for _, a := range final {
		if strings.HasPrefix(a.Name, "reward ") {
			continue // a replica of a reward function, which the cluster starts itself
		}
		if a.Reason != "START_FAILED" && !unserved[a.ID] { // else its engine was removed
			states[a.State]++
		}
		if request, _, _ := strings.Cut(a.Name, "/"); !possible[request] {
			t.Errorf("action %d exists, and all its submissions were recorded as failed: %+v", a.ID, a)
		}
		if a.State == "SUCCEEDED" && !complete[a.ID] {
			t.Errorf("action %d succeeded, and no execution of it was complete", a.ID)
		}
	}
	t.Logf("final: %v", states)
	if states["SUCCEEDED"] == 0 || states["CANCELED"] == 0 {
		t.Error("nothing succeeded, or nothing was canceled")
	}
	if states["FAILED"]+states["LOST"] > 0 {
		t.Errorf("although no agent met a fault, %v", states)
	}
}

// checkEvents: there is a watcher of each server, and each received events in
// order, up to the newest.
func checkEvents(t *testing.T, rec *history.Record) {
	t.Helper()
	newest := map[int]uint64{}
	servers := map[string]bool{}
	for _, e := range rec.Watch {
		if e.Revision <= newest[e.Watcher] {
			t.Fatalf("watcher %d was at %d and received %+v", e.Watcher, newest[e.Watcher], e)
		}
		newest[e.Watcher] = e.Revision
		servers[e.Server] = true
	}
	samples := map[string]int{}
	for _, s := range rec.Samples {
		if s.Term == 0 || s.Commit == 0 {
			t.Errorf("sample: %+v", s)
		}
		if s.Hash != "" { // none if a server was frozen before it came to that
			samples[s.Server]++
		}
	}
	if len(servers) != 3 || len(samples) != 3 || slices.Max(slices.Collect(maps.Values(samples))) < 8 {
		t.Errorf("watched: %v, sampled: %v", servers, samples)
	}
}
