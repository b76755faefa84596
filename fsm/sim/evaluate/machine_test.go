package evaluate

import (
	"slices"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/sim/workload"
	"rota/fsm/state"
)

// The leader has one entry in flight, and what comes meanwhile shares the next.
func TestCommandsThatComeWhileAnEntryIsInFlightShareTheNext(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=5")...)
	s.Latency = Latency{Commit: 1_000_000}
	in := must(s.Input())
	w := &world{in: in, ctx: t.Context()}
	m := must(newMachine(w, 0))
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
	if g := m.grant(&cpu, &state.Attempt{Cores: cores(5)}); g != (grant{units: 5}) {
		t.Errorf("%+v", g)
	}
}

func cores(n int) (set state.CoreSet) {
	for i := range n {
		set.Add(i)
	}
	return set
}
