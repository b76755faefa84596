package predict

import (
	"slices"

	"rota/fsm/state"
)

// Siblings are the other trajectories of a prompt group.
type Siblings struct {
	// Finished is how many came to their end, MeanTokens what they generated on average.
	Finished   uint32
	MeanTokens uint64
}

// Report is what a trajectory did since the report before. Turns may be more than one.
type Report struct {
	Turns        uint32
	OutputTokens uint64
	// ContextTokens is the prompt of the last turn.
	ContextTokens uint64
	// ToolNS is the time between turns, in nanoseconds.
	ToolNS int64
	// FinishReason is that of the last turn, as in OpenAI's API; empty: not known.
	FinishReason string
	// ToolFailed: the last tool call ended with an exit code that is not 0.
	ToolFailed bool
}

// Begin returns the trace of a trajectory before its first turn.
func Begin(c *state.LengthClass, promptTokens uint64, s Siblings) state.LengthTrace {
	t := state.LengthTrace{PromptTokens: min(promptTokens, state.LengthTokensMax)}
	mark(c, &t, s)
	return t
}

// Follow returns the trace of a trajectory with one more report. The old trace stays as it is.
func Follow(c *state.LengthClass, old *state.LengthTrace, r Report, s Siblings) state.LengthTrace {
	t := *old
	if r.Turns == 0 {
		t.OutputTokens = added(t.OutputTokens, r.OutputTokens)
		return t
	}
	turns := uint64(r.Turns)
	context := min(r.ContextTokens, state.LengthTokensMax)
	t.LastOutputTokens = min(r.OutputTokens, state.LengthTokensMax) / turns
	// Beyond the turns of this report but the last, the context has grown by what tools said.
	grown := added(old.LastOutputTokens, min(r.OutputTokens, state.LengthTokensMax)-t.LastOutputTokens)
	t.ToolResultTokens = 0
	if old.Turns > 0 && context > added(old.ContextTokens, grown) {
		t.ToolResultTokens = (context - old.ContextTokens - grown) / turns
	}
	if before := added(max(old.ContextTokens, old.PromptTokens), grown); context > before {
		t.ResultTokens = added(t.ResultTokens, context-before)
	}
	t.Turns += min(r.Turns, ^uint32(0)-t.Turns)
	t.OutputTokens = added(t.OutputTokens, r.OutputTokens)
	t.ContextTokens, t.ToolNS = context, max(0, r.ToolNS)/int64(turns)
	t.Stopped, t.Failed = r.FinishReason == "stop", r.ToolFailed
	mark(c, &t, s)
	return t
}

// added returns a sum of tokens, at most LengthTokensMax.
func added(a, b uint64) uint64 {
	return min(min(a, state.LengthTokensMax)+min(b, state.LengthTokensMax), state.LengthTokensMax)
}

// mark notes how a trajectory looks when it comes to a stage.
func mark(c *state.LengthClass, t *state.LengthTrace, s Siblings) {
	stage := state.LengthStageOf(t.Turns)
	if n := len(t.Marks); n > 0 && int(t.Marks[n-1].Stage) >= stage {
		return
	}
	m := state.LengthMark{
		Stage: uint8(stage), Features: features(t), Turns: t.Turns, OutputTokens: t.OutputTokens,
	}
	e := expect(c, t, &m.Features)
	m.Guess, m.Near, m.Plane = uint32(e.tokens.mean), uint32(e.near), uint32(e.plane)
	if s.Finished > 0 {
		m.Siblings, m.SiblingGuess = s.Finished, uint32(s.position(t.OutputTokens))
	}
	t.Marks = append(slices.Clip(t.Marks), m)
}

// stopped is the distance between turns that ended with a tool call and turns that did not, in
// quarters of an octave.
const stopped = 8

// features are how a trajectory looks: logarithms, in quarters of an octave.
func features(t *state.LengthTrace) (f [state.LengthFeatures]uint8) {
	f[0] = bucket(t.PromptTokens)
	if t.Turns == 0 {
		return f
	}
	f[1] = bucket(t.OutputTokens / uint64(t.Turns))
	f[2] = bucket(t.LastOutputTokens)
	f[3] = bucket(t.ContextTokens - min(t.ContextTokens, t.PromptTokens))
	f[4] = bucket(uint64(t.ToolNS) / 1_000_000)
	f[5] = bucket(t.ToolResultTokens)
	if t.Stopped {
		f[6] = stopped
	}
	if t.Failed {
		f[7] = stopped
	}
	return f
}
