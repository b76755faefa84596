package predict

import "rota/fsm/state"

// priorTokens is how many generated tokens what a class was measured counts as, beside those of
// the trajectory itself.
const priorTokens = 4096

// Prefill predicts how many tokens of its prompts a trajectory has computed yet, if its KV cache
// stays: its first prompt, if it has not begun, and what its tools say while it generates so many
// tokens. The class and its own turns say how much that is for each token. A class that is nil
// has learned nothing.
func Prefill(c *state.LengthClass, t *state.LengthTrace, tokens uint64) uint64 {
	results, output := t.ResultTokens, t.OutputTokens
	if c != nil && c.OutputTokens > 0 {
		results += state.MulDiv(c.ResultTokens, priorTokens, c.OutputTokens)
		output += priorTokens
	}
	yet := uint64(0)
	if output > 0 {
		yet = min(state.MulDiv(min(tokens, state.LengthTokensMax), results, output), state.LengthTokensMax)
	}
	if t.Turns == 0 {
		yet = added(yet, t.PromptTokens)
	}
	return yet
}

// count adds what a trajectory generated and what its tools said to the sums of its class.
func count(c *state.LengthClass, t *state.LengthTrace) {
	c.OutputTokens = added(c.OutputTokens, t.OutputTokens)
	c.ResultTokens = added(c.ResultTokens, t.ResultTokens)
	for c.OutputTokens >= state.LengthSumMax {
		c.OutputTokens, c.ResultTokens = c.OutputTokens/2, c.ResultTokens/2
	}
}
