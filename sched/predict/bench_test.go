package predict

import (
	"testing"

	"rota/fsm/state"
)

// full returns a class whose stages have all their examples, and a trajectory of so many turns.
func full(turns int) (*state.LengthClass, state.LengthTrace) {
	c := &state.LengthClass{Policy: "p"}
	var t state.LengthTrace
	for n := range uint64(2 * state.LengthExamplesMax) {
		t = Begin(c, 1000+37*n, Siblings{})
		for k := range 200 {
			t = Follow(c, &t, Report{Turns: 1, OutputTokens: 100 + n*uint64(k)%900, ContextTokens: t.ContextTokens + 700, ToolNS: int64(n) << 24}, Siblings{})
		}
		c = Learn(c, &t, false, int64(n))
	}
	t = Begin(c, 5000, Siblings{})
	for range turns {
		t = Follow(c, &t, Report{Turns: 1, OutputTokens: 300, ContextTokens: t.ContextTokens + 700, ToolNS: 1 << 30}, Siblings{})
	}
	return c, t
}

func BenchmarkRemaining(b *testing.B) {
	c, t := full(5)
	b.ReportAllocs()
	for b.Loop() {
		Remaining(c, &t, Siblings{Finished: 3, MeanTokens: 4000})
	}
}

// BenchmarkFollow is of a report within a stage, which is most of them.
func BenchmarkFollow(b *testing.B) {
	c, t := full(5)
	b.ReportAllocs()
	for b.Loop() {
		Follow(c, &t, Report{Turns: 1, OutputTokens: 300, ContextTokens: 9000, ToolNS: 1 << 30}, Siblings{})
	}
}

// BenchmarkLearn is of a trajectory that went through all stages.
func BenchmarkLearn(b *testing.B) {
	c, t := full(150)
	b.ReportAllocs()
	for b.Loop() {
		Learn(c, &t, false, 1)
	}
}
