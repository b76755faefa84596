package lengths

import (
	"fmt"
	"math"
	"math/rand/v2"

	"rota/internal/sim/workload"
	"rota/sched/predict"
)

// Session is the turns of a trajectory.
type Session struct {
	// Group has the sessions that are in one fold: siblings, or copies.
	Group int
	// Slot is where among its siblings it begins: stagger turns after the one before.
	Slot         int
	PromptTokens uint64
	Turns        []predict.Report
}

// Total returns the tokens that it generates.
func (s *Session) Total() uint64 { return s.Until(len(s.Turns)) }

// Until returns the tokens of its first turns.
func (s *Session) Until(turns int) (sum uint64) {
	for i := range s.Turns[:turns] {
		sum += s.Turns[i].OutputTokens
	}
	return sum
}

// FromTrace turns a trace into sessions. Those with the same prompt and the same first answer are
// one group.
func FromTrace(trace []workload.Session) []Session {
	type beginning struct{ prompt, answer int64 }
	groups := map[beginning]int{}
	var out []Session
	for _, t := range trace {
		first := beginning{t.Turns[0].InputTokens, t.Turns[0].Output}
		if _, ok := groups[first]; !ok {
			groups[first] = len(groups)
		}
		s := Session{Group: groups[first], PromptTokens: uint64(t.Turns[0].InputTokens)}
		for _, turn := range t.Turns {
			s.Turns = append(s.Turns, predict.Report{
				Turns: 1, OutputTokens: uint64(turn.Output), ContextTokens: uint64(turn.InputTokens),
				ToolNS: turn.Gap, FinishReason: finishReasons[turn.Stop],
			})
		}
		out = append(out, s)
	}
	return out
}

// finishReasons are OpenAI's words for those of the trace.
var finishReasons = map[string]string{"end_turn": "stop", "tool_use": "tool_calls"}

// Planted is the structure of simulated sessions. Each figure is a standard deviation, in octaves.
type Planted struct {
	// Groups of Samples sessions.
	Groups, Samples int
	// Alike is how much groups differ in their numbers of turns, Within how much the sessions of a
	// group do.
	Alike, Within float64
	// Shown is how much of a group's difference its prompt shows, from 0 to 1, and how much of a
	// session's own difference its tool calls show.
	Shown float64
}

// Check returns an error unless there can be such sessions.
func (p Planted) Check() error {
	if p.Groups < 2 || p.Groups > 10_000 || p.Samples < 1 || p.Samples > 100 || p.Groups*p.Samples > 20_000 {
		return fmt.Errorf("there must be 2 to 10,000 groups of 1 to 100 samples, at most 20,000 in all, not %d groups of %d", p.Groups, p.Samples)
	}
	if !(p.Alike >= 0 && p.Alike <= 4 && p.Within >= 0 && p.Within <= 4 && p.Shown >= 0 && p.Shown <= 1) {
		return fmt.Errorf("groups and their sessions may differ by 0 to 4 octaves, of which 0 to 1 is shown, not by %g and %g, of which %g", p.Alike, p.Within, p.Shown)
	}
	return nil
}

// Generate simulates sessions. A session has about 16 turns, times 2 to its difference, of about
// 300 tokens. The more turns, the longer are its tools' results, and the sooner they come.
func Generate(p Planted, seed uint64) (out []Session) {
	r := rand.New(rand.NewPCG(seed, 0x1e57))
	octaves := func(of float64, n float64) uint64 { return uint64(max(1, of*math.Exp2(n))) }
	for g := range p.Groups {
		alike := p.Alike * r.NormFloat64()
		prompt := octaves(2000, p.Shown*alike+(1-p.Shown)*r.NormFloat64())
		for slot := range p.Samples {
			own := p.Within * r.NormFloat64()
			s := Session{Group: g, Slot: slot, PromptTokens: prompt}
			pace := r.NormFloat64() / 4
			context := prompt
			for range min(400, octaves(16, alike+own)) {
				output := octaves(300, pace+r.NormFloat64()/2)
				s.Turns = append(s.Turns, predict.Report{
					Turns: 1, OutputTokens: output, ContextTokens: context, FinishReason: "tool_calls",
					ToolNS: int64(octaves(8e9, r.NormFloat64()/2-p.Shown*own)),
				})
				context += output + octaves(400, r.NormFloat64()/2+p.Shown*own)
			}
			out = append(out, s)
		}
	}
	return out
}
