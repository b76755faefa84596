package predict

import (
	"testing"

	"rota/fsm/state"
)

// TestPrefill: what tools said for each generated token goes on, first as the class was measured,
// and more and more as the trajectory itself.
func TestPrefill(t *testing.T) {
	learned := &state.LengthClass{OutputTokens: 1000, ResultTokens: 3000}
	for what, test := range map[string]struct {
		class  *state.LengthClass
		trace  state.LengthTrace
		tokens uint64
		want   uint64
	}{
		"nothing is known":         {nil, state.LengthTrace{PromptTokens: 50}, 100, 50},
		"as the class":             {learned, state.LengthTrace{PromptTokens: 50}, 100, 350},
		"the prompt is computed":   {learned, state.LengthTrace{PromptTokens: 50, Turns: 1}, 100, 300},
		"as itself":                {nil, state.LengthTrace{Turns: 1, OutputTokens: 10, ResultTokens: 5}, 100, 50},
		"half as the class":        {learned, state.LengthTrace{Turns: 1, OutputTokens: 4096}, 100, 150},
		"no more than can be said": {nil, state.LengthTrace{Turns: 1, OutputTokens: 1, ResultTokens: 1 << 40}, 1 << 60, 1 << 40},
	} {
		if got := Prefill(test.class, &test.trace, test.tokens); got != test.want {
			t.Errorf("%s: %d, want %d", what, got, test.want)
		}
	}
}

// TestResultsAreCounted: prompts beyond what was known are counted once, and learned with the
// trajectory. Sums are halved before they become too large.
func TestResultsAreCounted(t *testing.T) {
	c := &state.LengthClass{Policy: "p"}
	trace := Begin(c, 100, Siblings{})
	for _, r := range []Report{
		{Turns: 1, OutputTokens: 10, ContextTokens: 100}, // the prompt
		{Turns: 1, OutputTokens: 20, ContextTokens: 150}, // 40 of a tool
		{Turns: 2, OutputTokens: 60, ContextTokens: 300}, // 100 of two
		{Turns: 1, OutputTokens: 10, ContextTokens: 310}, // less than was generated
		{OutputTokens: 100}, // of a turn that goes on
		{Turns: 1, OutputTokens: 10, ContextTokens: 1000}, // 680
	} {
		trace = Follow(c, &trace, r, Siblings{})
	}
	if trace.ResultTokens != 820 || trace.OutputTokens != 210 {
		t.Errorf("%d tokens of results and %d generated, want 820 and 210", trace.ResultTokens, trace.OutputTokens)
	}
	if c = Learn(c, &trace, false, 1); c.ResultTokens != 820 || c.OutputTokens != 210 {
		t.Errorf("the class has %d and %d", c.ResultTokens, c.OutputTokens)
	}
	c.OutputTokens = state.LengthSumMax - 1
	if c = Learn(c, &trace, false, 2); c.OutputTokens != (state.LengthSumMax-1+210)/2 || c.ResultTokens != 820 {
		t.Errorf("the class has %d and %d after it was halved", c.ResultTokens, c.OutputTokens)
	}
}
