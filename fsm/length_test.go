package fsm

import (
	"fmt"
	"testing"

	"rota/fsm/state"
	"rota/sched/predict"
)

// ended returns the trace of a trajectory that generated so much in one turn.
func ended(c *state.LengthClass, tokens uint64) *state.LengthTrace {
	t := predict.Begin(c, 1000, predict.Siblings{})
	t = predict.Follow(c, &t, predict.Report{Turns: 1, OutputTokens: tokens, ContextTokens: 1000}, predict.Siblings{})
	return &t
}

// A class too many takes the place of the one that learned longest ago.
func TestLengthClassesAreBounded(t *testing.T) {
	s := state.New()
	s.SetMeta(state.Meta{Settings: state.Settings{}.WithDefaults(), Level: state.LevelResizing})
	x := &execution{s: s}
	at := func(now int64) {
		m := *s.Meta()
		m.Now = now
		s.SetMeta(m)
	}
	for i := range state.LengthClassesMax {
		at(int64(i + 1))
		x.learnLength("p", fmt.Sprint(i), ended(nil, 500), false)
	}
	at(1000)
	x.learnLength("p", "0", ended(nil, 500), false)
	if c := s.LengthClass("p", "0"); c.Trajectories != 2 || c.LearnedAt != 1000 {
		t.Errorf("class 0 is %+v", c)
	}
	x.learnLength("q", "1", ended(nil, 500), false)
	if s.LengthClass("p", "0") == nil || s.LengthClass("p", "1") != nil || s.LengthClass("q", "1") == nil || s.LengthClassCount() != state.LengthClassesMax {
		t.Errorf("of %d classes, the one that learned longest ago did not go", s.LengthClassCount())
	}
	if x.learnLength("q", "2", ended(nil, 5), true); s.LengthClass("q", "2") != nil || s.LengthClassCount() != state.LengthClassesMax {
		t.Error("a trajectory that teaches nothing made a class")
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
