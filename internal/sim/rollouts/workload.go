package rollouts

import (
	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// Trajectory is one sample of a prompt group, as it will be whatever the policy does.
type Trajectory struct {
	// Group is the prompt's number in its step, from 0. Siblings share the prompt.
	Group int
	// Task is which of the tasks of a mix it is of, from 0.
	Task   int
	Prompt int64 // tokens
	Turns  []Turn
}

// Turn is one request to the model, and the tool that its answer calls. The last one calls none.
type Turn struct {
	Output     int64 // tokens that are generated
	ToolTokens int64 // tokens that the tool's result adds to the context
	ToolNS     int64
	// ToolFailed: the tool's exit code is not 0.
	ToolFailed bool
}

// Output is the number of all tokens that a trajectory generates.
func (t *Trajectory) Output() (tokens int64) {
	for i := range t.Turns {
		tokens += t.Turns[i].Output
	}
	return tokens
}

// Context is the number of tokens in its last request and that request's answer.
func (t *Trajectory) Context() int64 {
	tokens := t.Prompt
	for i := range t.Turns {
		tokens += t.Turns[i].Output + t.Turns[i].ToolTokens
	}
	return tokens
}

// Names of draws. A draw depends on the name, the step and the place in it, so a policy changes
// nobody's luck.
const (
	drawPrompt = iota + 1
	drawSample
	drawSession
	drawRedundant
	drawFault
	drawMix
)

// Correlations with the length of a trajectory, in thousandths: of the length that its group
// shares with that of the prompt (an assumption), and of the number of turns (rollouts.csv: 0.89).
const (
	promptLoading = 500
	turnsLoading  = 890
)

// Tool failures: a turn that is not the last but one mostly follows a failed attempt.
// Assumptions, in parts per million.
const (
	failedEarly = 700_000
	failedLast  = 200_000
)

// draw returns a value of a distribution at a number of standard deviations in millionths, with
// a spread of percent of its own.
func (l *logNormal) draw(z, percent int64) int64 {
	v := workload.TimesExp(l.Median, z*l.SigmaPPM/million*percent/100)
	return min(max(v, l.Least), l.Most)
}

// mixed is a standard normal number, in millionths: thousandths of loading on a, the rest on b.
func mixed(a, b, loading int64) int64 {
	return (a*loading + b*root(million-loading*loading)) / 1000
}

// root is the square root, rounded down.
func root(v int64) int64 {
	r := int64(0)
	for bit := int64(1) << 20; bit > 0; bit >>= 1 {
		if (r+bit)*(r+bit) <= v {
			r += bit
		}
	}
	return r
}

// sample is the luck of one sample of a group. Redundant ones have luck of their own, so that they
// change nobody's.
func (s *Setup) sample(draws sim.Draws, step, group, i int64) sim.Draw {
	if i >= s.Group {
		return draws.Of(drawRedundant, step<<32|group<<8|(i-s.Group))
	}
	return draws.Of(drawSample, step<<32|group*s.Group+i)
}

func normal(d *sim.Draw) int64 { return workload.Normal(d.Uint64()) }

// synthetic draws a step of a task: groups of samples whose lengths are correlated.
func synthetic(t *Task, s *Setup, step int64) []Trajectory {
	out := make([]Trajectory, 0, s.trajectories())
	draws, loading := sim.Draws(s.Seed), root(s.Siblings*10_000)
	for g := range s.trajectories() / s.Group {
		d := draws.Of(drawPrompt, step<<32|g)
		prompt := normal(&d)
		tokens := t.Prompt.draw(mixed(prompt, normal(&d), promptLoading), 100)
		for i := range s.Group + s.Redundant {
			d := s.sample(draws, step, g, i)
			length := mixed(prompt, normal(&d), loading)
			tr := Trajectory{Group: int(g), Prompt: tokens}
			tr.Turns = t.turns(&d, t.Output.draw(length, s.Skew), t.Turns.draw(mixed(length, normal(&d), turnsLoading), s.Skew))
			out = append(out, tr)
		}
	}
	return out
}

// turns divides the output of a trajectory among its turns.
func (t *Task) turns(d *sim.Draw, output, n int64) []Turn {
	n = min(n, output)
	out, weights, sum := make([]Turn, n), make([]int64, n), int64(0)
	for i := range weights {
		weights[i] = workload.TimesExp(1000, normal(d)*t.TurnSigmaPPM/million)
		sum += weights[i]
	}
	left := output - n // each turn has a token at least
	for i := range out {
		share := left * weights[i] / max(sum, 1)
		left, sum = left-share, sum-weights[i]
		out[i].Output = 1 + share
		if int64(i) == n-1 {
			out[i].Output += left
			break
		}
		failed := int64(failedEarly)
		if int64(i) == n-2 {
			failed = failedLast
		}
		out[i].ToolTokens, out[i].ToolNS = t.ToolTokens.draw(normal(d), 100), t.ToolNS.draw(normal(d), 100)
		out[i].ToolFailed = d.Chance(failed)
	}
	return out
}
