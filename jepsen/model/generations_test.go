package model

import (
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// rolling is a world with rollouts, of which some trajectories generate.
type rolling struct {
	*world
	rollout uint64 // the newest
}

func (w *rolling) one() *logv1.Command {
	last := uint64(w.s.Meta().LastTrajectory)
	id := 1 + last - min(last, w.rand.Uint64N(12)) // or one that is not there yet
	switch n := w.rand.IntN(66); {
	case n == 0:
		return expireOf("n1", w.s.NodeByName("n1").Incarnation)
	case n == 1:
		w.rollout++
		return &logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{Policy: "p", Groups: 3, SamplesPerGroup: 4, Redundant: 2, Staleness: 1}}}
	case n == 2:
		return &logv1.Command{Verb: &logv1.Command_PublishVersion{PublishVersion: &logv1.PublishVersion{Policy: "p", Version: w.rand.Uint64N(w.index)}}}
	case n == 3:
		return &logv1.Command{Verb: &logv1.Command_SetAffinity{SetAffinity: &logv1.SetAffinity{
			Policy: w.pick("p", "q"), TaskClass: w.pick("", "code"), Hardware: [][]string{nil, {"x"}, {"y", "x"}, {"x", "x"}}[w.rand.IntN(4)],
			CostPercent: w.rand.Uint32N(120), SpillPercent: w.rand.Uint32N(3) * 40, Remove: w.rand.IntN(4) == 0,
		}}}
	case n == 4:
		return w.register(w.pick("a", "b", "c"))
	case n < 6:
		return nodeOf(w.pick("n1", "n2"), 2, 1000)
	case n < 20:
		return w.open()
	case n < 24:
		return &logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: id}}}
	case n < 34:
		return &logv1.Command{Verb: &logv1.Command_PutSample{PutSample: &logv1.PutSample{TrajectoryId: id, KeepOpen: w.rand.IntN(4) == 0}}}
	case n >= 60:
		return w.predict(id)
	}
	c := &logv1.ReportGenerations{}
	for range 1 + w.rand.IntN(4) {
		c.Generations = append(c.Generations, &logv1.GenerationReport{
			TrajectoryId: id - w.rand.Uint64N(min(id, 8)), Turns: uint32(w.rand.IntN(1 << w.rand.IntN(5))), OutputTokens: w.rand.Uint64N(3000), ContextTokens: w.rand.Uint64N(20_000),
			ToolNs: w.rand.Int64N(9 * second), FinishReason: w.pick("", "stop", "length"), Generating: w.rand.IntN(3) == 0,
		})
	}
	return &logv1.Command{Verb: &logv1.Command_ReportGenerations{ReportGenerations: c}}
}

// register has a worker of some kind, speed and price.
func (w *rolling) register(name string) *logv1.Command {
	first := 1 + w.rand.Int64N(20_000_000)
	return &logv1.Command{Verb: &logv1.Command_RegisterWorker{RegisterWorker: &logv1.RegisterWorker{
		Name: name, Policy: "p", Url: "http://" + name, Hardware: w.pick("x", "y", ""), Cost: w.rand.Uint64N(4), Degree: 1 + w.rand.Uint32N(3), Version: 1 << 40,
		Slots: w.rand.Uint32N(6), Prefill_1KNs: w.rand.Int64N(2) * w.rand.Int64N(200_000_000),
		Profile: []*logv1.WorkerProfilePoint{{BatchSize: 1, TokenNs: first}, {BatchSize: 8, TokenNs: first + w.rand.Int64N(30_000_000)}},
	}}}
}

// predict has a predictor service say something of the newest trajectories, mostly what is up to date.
func (w *rolling) predict(last uint64) *logv1.Command {
	c := &logv1.PredictGenerations{}
	for id := last - min(last, 6); id <= last; id++ {
		turns := w.rand.Uint32N(3)
		if g := w.s.Generation(state.TrajectoryID(id)); g != nil && w.rand.IntN(8) > 0 {
			turns = g.Trace.Turns
		}
		c.Predictions = append(c.Predictions, &logv1.GenerationPrediction{
			TrajectoryId: id, Turns: turns, Tokens: w.rand.Uint64N(1 << w.rand.IntN(40)), TokensP50: w.rand.Uint64N(1 << w.rand.IntN(30)),
			TokensP90: w.rand.Uint64N(1 << w.rand.IntN(30)), TurnsLeft: w.rand.Uint32N(1 << w.rand.IntN(20)),
		})
	}
	return &logv1.Command{Verb: &logv1.Command_PredictGenerations{PredictGenerations: c}}
}

func (w *rolling) open() *logv1.Command {
	c := &logv1.OpenTrajectory{MemoryBytes: 40, IdleTimeoutNs: 200 * second}
	if w.rand.IntN(10) > 0 {
		c.Generation = &logv1.GenerationSpec{Policy: "p", TaskClass: w.pick("", "code"), PromptTokens: 200 << w.rand.IntN(4)}
	}
	if w.rollout > 0 && w.rand.IntN(5) > 0 {
		c.Rollout = &logv1.RolloutMembership{RolloutId: w.rollout, Group: w.rand.Uint32N(3)}
	}
	return &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: c}}
}

// TestRandomGenerations: from random rollouts the state machine learns and keeps of trajectories
// what the model says.
func TestRandomGenerations(t *testing.T) {
	var learned, withSiblings, together, said int
	var chosen [4]int // by state.HardwareChoice
	for seed := range uint64(6) {
		w := &rolling{world: newWorld(t, seed, &logv1.Settings{RetentionNs: 100 * second})}
		w.must(t, levelThree, nodeOf("n1", 2, 1000), nodeOf("n2", 2, 1000))
		w.must(t, &logv1.Command{Verb: &logv1.Command_RegisterWorker{RegisterWorker: &logv1.RegisterWorker{
			Name: "w", Policy: "p", Url: "http://w", Profile: []*logv1.WorkerProfilePoint{{BatchSize: 1, TokenNs: 1_000_000}},
		}}})
		for range 1200 {
			w.now += w.rand.Int64N(2 * second)
			var commands []*logv1.Command
			for range 1 + w.rand.IntN(3) {
				commands = append(commands, w.one())
			}
			before := uint64(0)
			if c := w.s.LengthClass("p", ""); c != nil {
				before = c.Trajectories
			}
			if _, err := w.apply(commands...); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if c := w.s.LengthClass("p", ""); c != nil && c.Trajectories > before+1 {
				together++
			}
		}
		if err := w.model.Compare(w.s); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, c := range []*state.LengthClass{w.s.LengthClass("p", ""), w.s.LengthClass("p", "code")} {
			if c == nil {
				t.Fatalf("seed %d: a class has learned nothing", seed)
			}
			learned += int(c.Trajectories)
			for _, g := range c.Stages {
				withSiblings += int(g.SiblingsSeen)
			}
		}
		w.s.Generations(0, func(g *state.Generation) bool {
			chosen[g.Choice.By]++
			if g.Service.Said {
				said++
			}
			return true
		})
		if n := len(w.model.workers.ending); n > 0 {
			t.Errorf("seed %d: %d trajectories ended without an event", seed, n)
		}
	}
	if chosen[state.HardwareRuled] < 10 || chosen[state.HardwareMeasured] < 10 {
		t.Errorf("hardware was chosen %v times by the ways to choose it", chosen)
	}
	if said < 10 {
		t.Errorf("a predictor service said something of %d trajectories", said)
	}
	if learned < 300 || withSiblings < 100 || together < 20 {
		t.Errorf("%d trajectories were learned, %d stages had siblings, several were learned in %d entries", learned, withSiblings, together)
	}
}
