package model

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"rota/fsm/state"
	"rota/sched/predict"
)

// drawnTrajectories are random trajectories in the real state and in the model.
type drawnTrajectories struct {
	r      *rand.Rand
	s      *state.State
	model  lengths
	now    int64
	taught int
}

// TestLengthsAreThoseOfTheModel: what the state machine learns and keeps of trajectories is what
// the model says.
func TestLengthsAreThoseOfTheModel(t *testing.T) {
	for seed := range uint64(2) {
		w := &drawnTrajectories{r: rand.New(rand.NewPCG(seed, 1)), s: state.New()}
		w.s.SetMeta(state.Meta{Settings: state.Settings{}.WithDefaults(), Level: state.LevelResizing})
		for range 600 {
			if err := w.one(); err != nil {
				t.Fatalf("seed %d, at %d: %v", seed, w.now, err)
			}
		}
		if w.taught < 350 {
			t.Errorf("seed %d: only %d trajectories taught anything", seed, w.taught)
		}
		if c := w.s.LengthClass("p", "0"); c == nil || c.Stages[0].Seen <= lengthExamplesMax {
			t.Errorf("seed %d: no class has forgotten an example", seed)
		}
	}
}

// number draws from all sizes.
func (w *drawnTrajectories) number() uint64 { return w.r.Uint64() >> (24 + w.r.IntN(41)) }

// one lets a trajectory run to its end.
func (w *drawnTrajectories) one() error {
	name := lengthName{"p", fmt.Sprint(w.r.IntN(4) / 3)}
	c := w.s.LengthClass(name.policy, name.class)
	said := predict.Siblings{}
	if w.r.IntN(2) == 0 {
		said = predict.Siblings{Finished: 1 + w.r.Uint32N(5), MeanTokens: w.number()}
	}
	prompt := w.number()
	got, want := predict.Begin(c, prompt, said), w.model.begin(name, prompt, said.Finished, said.MeanTokens)
	for range w.r.IntN(12) {
		r := lengthReport{turns: 1 + w.r.Uint32N(1<<w.r.IntN(7)), output: w.number(), context: w.number(), toolNS: int64(w.number()), failed: w.r.IntN(4) == 0}
		if w.r.IntN(3) == 0 {
			r.finish = "stop"
		}
		got = predict.Follow(c, &got, predict.Report{Turns: r.turns, OutputTokens: r.output, ContextTokens: r.context, ToolNS: r.toolNS, FinishReason: r.finish, ToolFailed: r.failed}, said)
		w.model.follow(name, want, r, said.Finished, said.MeanTokens)
		if row := want.row(); !reflect.DeepEqual(got, row) {
			return fmt.Errorf("the trace is %+v, must be %+v", got, row)
		}
	}
	if c == nil {
		c = &state.LengthClass{Policy: name.policy, Name: name.class}
	}
	cut := w.r.IntN(5) == 0
	w.now++
	if learned := predict.Learn(c, &got, cut, w.now); learned != c {
		w.s.PutLengthClass(learned)
		w.taught++
	}
	w.model.learn(name, want, cut, w.now)
	return w.model.compare(w.s)
}

// TestLengthsBeyondMemory: a stage that has seen more than it represents keeps what the model does.
func TestLengthsBeyondMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	s, l, name := state.New(), lengths{}, lengthName{"p", ""}
	c := &state.LengthClass{Policy: "p"}
	for n := range int64(lengthMemory + 500) {
		prompt, output := 1+r.Uint64N(9000), 1+r.Uint64N(9000)
		got, want := predict.Begin(c, prompt, predict.Siblings{}), l.begin(name, prompt, 0, 0)
		got = predict.Follow(c, &got, predict.Report{Turns: 1, OutputTokens: output, ContextTokens: prompt}, predict.Siblings{})
		l.follow(name, want, lengthReport{turns: 1, output: output, context: prompt}, 0, 0)
		c = predict.Learn(c, &got, false, n)
		l.learn(name, want, false, n)
	}
	s.PutLengthClass(c)
	if err := l.compare(s); err != nil {
		t.Error(err)
	}
}

func TestLengthsThatDiffer(t *testing.T) {
	for i, spoil := range []func(*state.LengthClass){
		func(c *state.LengthClass) { c.Trajectories++ },
		func(c *state.LengthClass) { c.LearnedAt++ },
		func(c *state.LengthClass) { c.Stages[0].Error++ },
		func(c *state.LengthClass) { c.Stages[0].Examples[9]++ },
		func(c *state.LengthClass) { c.Stages[0].Plane.Slopes[0]++ },
		func(c *state.LengthClass) { c.Stages = append(c.Stages, state.LengthStage{}) },
		func(c *state.LengthClass) { c.Name = "else" },
	} {
		s, l, name := state.New(), lengths{}, lengthName{"p", "c"}
		c := &state.LengthClass{Policy: "p", Name: "c"}
		got, want := predict.Begin(nil, 7, predict.Siblings{}), l.begin(name, 7, 0, 0)
		got = predict.Follow(nil, &got, predict.Report{Turns: 1, OutputTokens: 9, ContextTokens: 7}, predict.Siblings{})
		l.follow(name, want, lengthReport{turns: 1, output: 9, context: 7}, 0, 0)
		c = predict.Learn(c, &got, false, 5)
		l.learn(name, want, false, 5)
		spoil(c)
		s.PutLengthClass(c)
		if err := l.compare(s); err == nil {
			t.Errorf("difference %d is not found", i)
		}
	}
}

// The class that learned longest ago makes room.
func TestLengthClassesThatAreForgotten(t *testing.T) {
	l := lengths{}
	trace := func(name lengthName) *lengthTrace {
		t := l.begin(name, 7, 0, 0)
		l.follow(name, t, lengthReport{turns: 1, output: 9, context: 7}, 0, 0)
		return t
	}
	for i := range lengthClassesMax + 1 {
		name := lengthName{"p", fmt.Sprint(i)}
		l.learn(name, trace(name), false, int64(i/2))
	}
	if len(l.all) != lengthClassesMax || l.all[lengthName{"p", "0"}] != nil || l.all[lengthName{"p", "1"}] == nil {
		t.Errorf("of %d classes, the first did not go", len(l.all))
	}
}
