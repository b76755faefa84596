package plan_test

import (
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/plan"
)

// generating is a state with two equal workers, and trajectories of policy p: those of worker a,
// then those of b, by what they are predicted to generate.
func generating(prefillNS int64, a, b []uint64) *state.State {
	s := state.New()
	s.SetMeta(state.Meta{ClusterID: "test", Level: state.LevelResizing})
	s.PutPolicy(&state.Policy{Name: "p"})
	for _, name := range []string{"a", "b"} {
		s.PutWorker(&state.Worker{
			Name: name, Policy: "p", Degree: 1, Prefill1kNS: prefillNS, Slots: 8,
			Profile: []state.WorkerPoint{{Batch: 1, TokenNS: 10_000_000}, {Batch: 4, TokenNS: 40_000_000}},
		})
	}
	id := state.TrajectoryID(0)
	for i, at := range [][]uint64{a, b} {
		for _, predicted := range at {
			id++
			s.PutGeneration(&state.Generation{
				Trajectory: id, Policy: "p", Worker: []string{"a", "b"}[i], Predicted: predicted, Cause: state.PlacedOpened,
				Trace: state.LengthTrace{Turns: 1, ContextTokens: 1000},
			})
		}
	}
	return s
}

func movesOf(plans []*logv1.Command) (moves []*logv1.GenerationMove) {
	for _, c := range plans {
		moves = append(moves, c.GetMoveGenerations().Moves...)
	}
	return moves
}

// TestLongTrajectoriesThatShareAWorkerArePulledApart: if it gains more than computing the prefix
// again takes, and the trajectory is between two turns.
func TestLongTrajectoriesThatShareAWorkerArePulledApart(t *testing.T) {
	long := []uint64{9000, 8000, 7000}
	s := generating(1_000_000, long, []uint64{10})
	moves := movesOf(plan.Generations(s))
	if len(moves) == 0 || len(moves) > 2 {
		t.Fatalf("the moves are %v", moves)
	}
	for _, m := range moves {
		if g := s.Generation(state.TrajectoryID(m.TrajectoryId)); m.From != g.Worker || m.To == m.From {
			t.Errorf("%v, of a trajectory at %s", m, g.Worker)
		}
	}
	if moves := movesOf(plan.Generations(generating(3_600_000_000_000, long, []uint64{10}))); len(moves) > 0 {
		t.Errorf("a prefix takes an hour: %v", moves)
	}
	if moves := movesOf(plan.Generations(generating(1_000_000, []uint64{9000}, []uint64{8000}))); len(moves) > 0 {
		t.Errorf("each has its own worker: %v", moves)
	}
	for i := range long {
		g := *s.Generation(state.TrajectoryID(1 + i))
		g.Generating = true
		s.PutGeneration(&g)
	}
	for _, m := range movesOf(plan.Generations(s)) {
		if s.Generation(state.TrajectoryID(m.TrajectoryId)).Generating {
			t.Errorf("%v, of a trajectory that generates", m)
		}
	}
}

// TestTrajectoriesThatHaveNotStartedMoveFree: they have no prefix that would be computed again.
func TestTrajectoriesThatHaveNotStartedMoveFree(t *testing.T) {
	s := generating(3_600_000_000_000, []uint64{9000, 8000}, nil)
	if moves := movesOf(plan.Generations(s)); len(moves) > 0 {
		t.Fatalf("a prefix takes an hour: %v", moves)
	}
	g := *s.Generation(2)
	g.Trace.Turns = 0
	s.PutGeneration(&g)
	if moves := movesOf(plan.Generations(s)); len(moves) != 1 || moves[0].TrajectoryId != 2 || moves[0].To != "b" {
		t.Errorf("the moves are %v: want trajectory 2 to b", moves)
	}
}

// TestNothingIsPlannedForOneWorker, nor onto one that is not up.
func TestNothingIsPlannedForOneWorker(t *testing.T) {
	s := generating(0, []uint64{9000, 8000, 7000}, nil)
	w := *s.Worker("b")
	w.Draining = true
	s.PutWorker(&w)
	if moves := movesOf(plan.Generations(s)); len(moves) > 0 {
		t.Errorf("the other drains: %v", moves)
	}
}

// TestMovesThatAreRefusedLeaveOthers: the worker that would drain first has hardware that is wanted
// less, so trajectories go to the next one.
func TestMovesThatAreRefusedLeaveOthers(t *testing.T) {
	s := generating(1_000_000, []uint64{9000, 8000, 7000}, nil)
	for _, name := range []string{"a", "b", "c"} {
		w := *s.Worker("a")
		w.Name, w.Hardware = name, map[string]string{"a": "good", "b": "poor", "c": "good"}[name]
		s.PutWorker(&w)
	}
	s.PutGeneration(&state.Generation{Trajectory: 4, Policy: "p", Worker: "c", Predicted: 1000, Cause: state.PlacedOpened, Trace: state.LengthTrace{Turns: 1, ContextTokens: 1000}})
	for id := range state.TrajectoryID(4) {
		g := *s.Generation(id + 1)
		g.Hardware = []string{"good"}
		s.PutGeneration(&g)
	}
	moves := movesOf(plan.Generations(s))
	if len(moves) == 0 {
		t.Error("no trajectory leaves the worker with three long ones")
	}
	for _, m := range moves {
		if m.To != "c" {
			t.Errorf("trajectory %d goes to %s", m.TrajectoryId, m.To)
		}
	}
}
