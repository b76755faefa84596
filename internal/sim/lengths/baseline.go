package lengths

import "math"

// history is what the baselines learn: sums over sessions.
type history struct {
	n, tokens, turns float64
	// Of logarithms of prompts and of tokens.
	x, y, xx, xy float64
}

func (h *history) add(s *Session) {
	h.n++
	h.tokens += float64(s.Total())
	h.turns += float64(len(s.Turns))
	x, y := logOf(s.PromptTokens), logOf(s.Total())
	h.x, h.y, h.xx, h.xy = h.x+x, h.y+y, h.xx+x*x, h.xy+x*y
}

func logOf(n uint64) float64 { return math.Log2(float64(n) + 1) }

// mean is what is known from history alone: all sessions have the mean length.
func (h *history) mean() float64 { return h.tokens / h.n }

// byPrompt is what is known from the prompt alone: the line by least squares through the
// logarithms of prompts and of lengths.
func (h *history) byPrompt(s *Session) float64 {
	slope := 0.0
	if v := h.xx - h.x*h.x/h.n; v > 0 {
		slope = (h.xy - h.x*h.y/h.n) / v
	}
	return math.Exp2(h.y/h.n + slope*(logOf(s.PromptTokens)-h.x/h.n))
}

// extrapolate presumes that a session goes on as it began, to the mean number of turns.
func (h *history) extrapolate(s *Session, turns int) float64 {
	return float64(s.Until(turns)) / float64(turns) * max(float64(turns), h.turns/h.n)
}
