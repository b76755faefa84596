package evaluate

import (
	"slices"
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// The leader has one entry in flight, and what comes meanwhile shares the next.
func TestCommandsThatComeWhileAnEntryIsInFlightShareTheNext(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=5")...)
	s.Latency = Latency{Commit: 1_000_000}
	in := must(s.Input())
	w := &world{in: in, ctx: t.Context()}
	m := must(newMachine(w, mapping{}))
	begun := m.index
	for i := range 3 {
		r := &rollout{}
		in.fill(r, 0, i)
		m.begin(r)
	}
	w.loop.Run(10_000_000)
	if entries := m.index - begun; entries != 2 || w.err != nil {
		t.Errorf("three trajectories were opened in %d entries, want 2 (%v)", entries, w.err)
	}
	m.fsm.View(func(s *state.State) {
		if n := s.Counts().OpenTrajectories; n != 3 {
			t.Errorf("%d trajectories are open", n)
		}
	})
	// What is refused ends the run: a client would be refused too.
	m.propose(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: 99}}}, nil)
	w.loop.Run(20_000_000)
	if w.err == nil {
		t.Error("a refusal passes")
	}
}

func TestCostsAreMapped(t *testing.T) {
	m := mapping{params: must(workload.Load("coding"))}
	cpu := workload.Action{Class: "c", Cost: []workload.Cost{{Resource: "cpu", Min: 1, Max: 8}}, Single: 80, Curve: workload.Curve{SerialPPM: 10}}
	if a := m.action(&cpu); a.CoresMin != 1 || a.CoresMax != 8 || a.AttemptsMax != 1 {
		t.Errorf("%+v", a)
	}
	m.fixed = 4
	if a := m.action(&cpu); a.CoresMin != 4 || a.CoresMax != 4 {
		t.Errorf("%+v", a)
	}
	m.fixed = 6
	cpu.Cost = []workload.Cost{{Resource: "cpu", Min: 1, Max: 8, Set: []int64{1, 2, 4, 8}}}
	if a := m.action(&cpu); a.CoresMin != 4 || a.CoresMax != 4 || len(a.Needs.GetCores()) != 0 {
		t.Errorf("%+v", a)
	}
	m.fixed = 0
	if a := m.action(&cpu); !slices.Equal(a.Needs.Cores, []uint32{1, 2, 4, 8}) {
		t.Errorf("%+v", a)
	}
	if g := m.grant(&cpu, &state.Attempt{Cores: cores(5)}); g != (grant{units: sim.Width{Units: 5}}) {
		t.Errorf("%+v", g)
	}
}

func cores(n int) (set state.CoreSet) {
	for i := range n {
		set.Add(i)
	}
	return set
}

func TestCallsUnderQuotasAreNeverTooMany(t *testing.T) {
	// One page at a time: they wait for each other instead of being refused.
	r := tools(run(t, setup(t, "deepsearch", calls...), "rota"))
	wantACTs(t, r, 1, 2, 3)
	if s := r.Kinds["tool"]; s.Retries != 0 || s.QueueMean != 1000 {
		t.Errorf("%+v", s)
	}
	// What hangs beyond the limit would take 600 s.
	r = run(t, setup(t, "deepsearch", "batch=64", "providers.page.limit=3", "providers.search.limit=2",
		"providers.page.overrun_error_ppm=0", "providers.search.overrun_error_ppm=0"), "rota")
	for _, e := range r.entries {
		if e.exec > 500*second {
			t.Fatalf("a call was beyond the limit: %+v", e)
		}
	}
}

func TestAModelIsRestoredOnce(t *testing.T) {
	one := "tasks.mopd.rewards.logprob.variants=[{\"name\":\"teacher-1\",\"weight\":1,\"duration_ppm\":1000000,\"think_ppm\":1000000}]"
	s := setup(t, "mopd", append(oneTeacher, one, "batch=1", "steps=3", "nodes=1")...)
	restore := must(s.Input()).Params().Service("teacher-1").Restore(8)
	// All eight GPUs, where the model stays. Only the first has to restore it.
	wantACTs(t, run(t, s, "rota"), 1+float64(restore)/second, 1, 1)
	wantACTs(t, run(t, s, "fixed-4"), 2+float64(must(s.Input()).Params().Service("teacher-1").Restore(4))/second, 2, 2)
}

func TestWhatIsKnown(t *testing.T) {
	for known, want := range map[string]struct{ profile, size, class bool }{
		"profiles": {true, false, true}, "sizes": {false, true, true}, "classes": {false, false, true}, "nothing": {false, false, false},
	} {
		in := must(setup(t, "coding", "known="+known).Input())
		m := mapping{params: in.Params(), told: in.told}
		turns := must(workload.New(m.params, 1)).Trajectory(0).Turns
		a := m.action(&turns[len(turns)-1].Action)
		if (a.Needs.GetProfile() != nil) != want.profile || (a.SizeHint > 0) != want.size || (a.Class != "") != want.class {
			t.Errorf("known=%s: %v", known, a)
		}
	}
	s := Setup{Workload: "coding"}
	if err := s.Set("known", "everything"); err == nil || !strings.Contains(err.Error(), "profiles, sizes, classes, nothing") {
		t.Errorf("known=everything: %v", err)
	}
}

func TestProfilesAreMapped(t *testing.T) {
	m := mapping{params: must(workload.Load("mopd"))}
	a := must(workload.New(m.params, 1)).Trajectory(0).Turns[0].Action
	g := m.action(&a)
	if g.Needs.Profile.SingleNs != a.Profiled || len(g.Needs.Profile.Points) != 4 || !slices.Equal(g.Needs.Gpus.Degrees, []uint32{1, 2, 4, 8}) ||
		g.Needs.Gpus.Model != a.Service || g.Needs.Gpus.SetupNs != m.params.Service(a.Service).Restore(4) || g.CoresMax != 0 || g.Class != a.Class {
		t.Errorf("%+v", g)
	}
	if g := m.grant(&a, &state.Attempt{Chunk: state.Chunk{Units: 2}, SetUpNS: 5}); g != (grant{sim.Width{Units: 2}, m.params.Service(a.Service).Restore(2)}) {
		t.Errorf("%+v", g)
	}
}
