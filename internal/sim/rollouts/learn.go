package rollouts

import (
	"cmp"
	"slices"

	"rota/fsm/state"
	"rota/sched/predict"
)

// learner is what the predictor has learned of tasks: each is one class, from step to step.
type learner struct {
	classes  []state.LengthClass // by Trajectory.Task
	siblings []predict.Siblings  // of each group of the step that runs
	// prompt and output are the tokens that were computed and generated in the step before.
	prompt, output int64
	// outputs are the lengths of the step before, the longest first.
	outputs []int64
}

func newLearner(s *Setup) *learner {
	return &learner{classes: []state.LengthClass{{Policy: s.Model, Name: s.Task}}}
}

// class is what was learned of the task of a trajectory.
func (l *learner) class(r *run) *state.LengthClass { return &l.classes[r.Task] }

// learn takes a trajectory that has ended into its class.
func (l *learner) learn(r *run, cut bool, now int64) {
	*l.class(r) = *predict.Learn(l.class(r), &r.trace, cut, now)
}

// begin forgets the groups of the step before.
func (l *learner) begin(groups int) { l.siblings = make([]predict.Siblings, groups) }

// predict sets what a trajectory is thought to generate yet, as far as the policy knows.
func (w *world) predict(r *run) {
	switch w.policy.knowledge {
	case nothing:
		r.predicted = 1
	case oracle:
		r.predicted = r.remaining()
	case fromPrompt:
		if r.turn == 0 {
			w.begun(r)
			r.first = r.predicted
		}
		r.predicted = max(1, r.first-r.attained)
	case progressive:
		if r.turn == 0 {
			w.begun(r)
			return
		}
		q := predict.Remaining(w.learned.class(r), &r.trace, w.learned.siblings[r.Group])
		r.predicted = max(1, int64(q.Tokens))
	}
}

// begun predicts from the prompt.
func (w *world) begun(r *run) {
	l := w.learned
	r.trace = predict.Begin(l.class(r), uint64(r.Prompt), l.siblings[r.Group])
	q := predict.Remaining(l.class(r), &r.trace, l.siblings[r.Group])
	r.predicted = max(1, int64(q.Tokens))
}

// learn teaches the predictor what a trajectory was.
func (w *world) learn(r *run) {
	l := w.learned
	l.learn(r, false, w.loop.Now())
	s := &l.siblings[r.Group]
	s.MeanTokens = (s.MeanTokens*uint64(s.Finished) + uint64(r.attained)) / uint64(s.Finished+1)
	s.Finished++
}

// learns reports whether a policy predicts with what was learned.
func (p *Policy) learns() bool { return p.knowledge == fromPrompt || p.knowledge == progressive }

// observe tells the predictor of a turn that was generated. The tool's result is not there yet:
// it is known when the next turn's request comes, but its duration counts there as well.
func (w *world) observe(r *run, prompt int64) {
	l, t := w.learned, &r.Turns[r.turn-1]
	if !w.policy.learns() {
		return
	}
	report := predict.Report{Turns: 1, OutputTokens: uint64(t.Output), ContextTokens: uint64(prompt), FinishReason: "tool_calls"}
	if r.turn > 1 {
		before := &r.Turns[r.turn-2]
		report.ToolNS, report.ToolFailed = before.ToolNS, before.ToolFailed
	}
	if r.turn == len(r.Turns) {
		report.FinishReason = "stop"
	}
	r.trace = predict.Follow(l.class(r), &r.trace, report, l.siblings[r.Group])
}

// promptUnknown is how many tokens of prompts are computed for 1,000 that are generated, before it
// was seen: an assumption.
const promptUnknown = 500

// promptPerMille is how many tokens of prompts were computed in the step before for 1,000 that were
// generated.
func (l *learner) promptPerMille() int64 {
	if l.output == 0 {
		return promptUnknown
	}
	return l.prompt * 1000 / l.output
}

// end notes what was measured of a step that has ended.
func (l *learner) end(runs []*run, r *StepResult) {
	l.prompt, l.output = r.PromptTokens, r.OutputTokens
	l.outputs = l.outputs[:0]
	for _, r := range runs {
		if !r.aborted {
			l.outputs = append(l.outputs, r.attained)
		}
	}
	slices.SortFunc(l.outputs, func(a, b int64) int { return cmp.Compare(b, a) })
}
