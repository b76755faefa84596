package rollouts

import (
	"cmp"
	"fmt"
	"slices"

	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// Bounds of what a session of a trace becomes as a trajectory. Sessions of people go on far
// longer than rollouts are let.
const (
	tracePromptMax  = 32_768
	traceContextMax = 131_072 // tokens; the turns after it are left out
)

// FromSessions makes trajectories of the sessions of a trace, sorted by the tokens that they
// generate. A gap is cut at gapMax nanoseconds: people are in it, not only tools. A result of a
// tool is what the next turn's input has more. Sessions without output are left out.
func FromSessions(sessions []workload.Session, gapMax int64) ([]Trajectory, error) {
	var out []Trajectory
	for i := range sessions {
		if t := fromSession(sessions[i].Turns, gapMax); len(t.Turns) > 0 {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no session of the trace generates tokens", ErrSetup)
	}
	slices.SortStableFunc(out, func(a, b Trajectory) int { return cmp.Compare(a.Output(), b.Output()) })
	return out, nil
}

func fromSession(turns []workload.SessionTurn, gapMax int64) (out Trajectory) {
	var context, input int64
	for i := range turns {
		t := &turns[i]
		if t.Output == 0 {
			continue
		}
		if len(out.Turns) == 0 {
			out.Prompt = min(max(t.InputTokens, 1), tracePromptMax)
			context = out.Prompt
		} else {
			last := &out.Turns[len(out.Turns)-1]
			last.ToolNS = min(t.Gap, gapMax)
			last.ToolTokens = min(max(0, t.InputTokens-input-last.Output), tracePromptMax)
			context += last.ToolTokens
		}
		if input = t.InputTokens; context+t.Output > traceContextMax {
			break
		}
		context += t.Output
		out.Turns = append(out.Turns, Turn{Output: t.Output})
	}
	if n := len(out.Turns); n > 0 {
		out.Turns[n-1].ToolTokens, out.Turns[n-1].ToolNS = 0, 0
	}
	return out
}

// resampled draws a step from the trajectories of a trace, which are sorted by length. Siblings
// are neighbours in that order: the spread is what is left of the correlation. The trace does
// not say which tools failed.
func resampled(pool []Trajectory, s *Setup, step int64) []Trajectory {
	out := make([]Trajectory, 0, s.trajectories())
	draws, loading, n := sim.Draws(s.Seed), root(s.Siblings*10_000), int64(len(pool))
	for g := range s.trajectories() / s.Group {
		d := draws.Of(drawSession, step<<32|g)
		prompt := normal(&d)
		for i := range s.Group + s.Redundant {
			d := s.sample(draws, step, g, i)
			at := workload.NormalRank(mixed(prompt, normal(&d), loading), n)
			tr := pool[at]
			tr.Group = int(g)
			if i > 0 {
				tr.Prompt = out[len(out)-1].Prompt // siblings share it
			}
			out = append(out, tr)
		}
	}
	return out
}
