package rollouts

import (
	"context"
	"fmt"
	"math"

	"rota/fsm/state"
	"rota/internal/sim"
)

// world is one step under one policy, in virtual time.
type world struct {
	ctx      context.Context
	setup    *Setup
	policy   *Policy
	loop     sim.Loop
	workers  []*worker
	runs     []*run
	siblings []int   // of each group, the worker that was last given its prompt; -1: none
	counted  []int64 // of each group, the trajectories that came to their end
	plan     *plan
	fleet    *fleet // workers of several kinds of hardware; nil: of one
	learned  *learner
	result   *StepResult
	open     int // trajectories that have not ended
	// ended is told of each trajectory that came to its end, if it is not nil.
	ended func(r *run)
	err   error
}

// run is a trajectory in a world.
type run struct {
	*Trajectory
	id       int
	turn     int   // the one that is generated now, or comes next
	context  int64 // tokens before this turn's output
	attained int64 // tokens generated
	// worker is where its KV cache is; -1: it has none yet.
	worker int
	// target is where it goes next, under a plan.
	target int
	// predicted are tokens that it is thought to generate yet, under a policy that predicts.
	predicted int64
	// first is what was predicted before the first turn; trace is what the predictor knows.
	first int64
	trace state.LengthTrace
	// fresh are the tokens of the context that were never computed for it.
	fresh   int64
	waiting int64 // since when its request waits in the engine
	tool    bool  // a tool runs
	ended   bool
	aborted bool // its group was complete without it
	// moving: its KV cache is being copied. held: a request waits for the copy.
	moving, held bool
}

// remaining is the truth, which only the oracle may see.
func (r *run) remaining() (tokens int64) {
	for i := r.turn; i < len(r.Turns); i++ {
		tokens += r.Turns[i].Output
	}
	return tokens
}

// runStep runs trajectories to their end.
func runStep(ctx context.Context, s *Setup, p *Policy, trajectories []Trajectory, learned *learner) (*StepResult, error) {
	w := &world{ctx: ctx, setup: s, policy: p, learned: learned, result: &StepResult{}, open: len(trajectories)}
	return w.run(trajectories)
}

// run runs trajectories to their end.
func (w *world) run(trajectories []Trajectory) (*StepResult, error) {
	learned := w.learned
	groups := 0
	for i := range trajectories {
		t := &trajectories[i]
		w.runs = append(w.runs, &run{Trajectory: t, id: i, context: t.Prompt, fresh: t.Prompt, worker: -1, target: -1})
		groups = max(groups, t.Group+1)
	}
	w.siblings, w.counted = make([]int, groups), make([]int64, groups)
	for i := range w.siblings {
		w.siblings[i] = -1
	}
	learned.begin(groups)
	for _, r := range w.runs {
		w.predict(r)
	}
	if err := w.begin(); err != nil {
		return nil, err
	}
	for _, r := range w.runs {
		w.request(r)
	}
	w.loop.Run(math.MaxInt64 / 2)
	if w.err == nil && w.open > 0 {
		w.err = fmt.Errorf("%d trajectories never end under %s: a context does not fit into a worker's memory", w.open, w.policy.Name)
	}
	if w.err != nil {
		return nil, w.err
	}
	w.measure()
	w.learned.end(w.runs, w.result)
	return w.result, nil
}

func (w *world) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.loop.Halt()
}

// request sends a turn to a worker.
func (w *world) request(r *run) {
	if err := w.ctx.Err(); err != nil {
		w.fail(err)
		return
	}
	if r.ended {
		return
	}
	r.tool = false
	if w.plan != nil && w.plan.mover.abandon(r) {
		r.target = r.worker
	}
	if r.moving {
		r.held = true
		return
	}
	to := w.route(r)
	if r.worker >= 0 && r.worker != to {
		w.result.Moves++
	}
	r.worker = to
	w.siblings[r.Group] = to
	w.submit(w.workers[to], r)
}

// finished is called when a worker has generated a turn.
func (w *world) finished(r *run) {
	t, prompt := &r.Turns[r.turn], r.context
	r.attained += t.Output
	r.context += t.Output + t.ToolTokens
	r.fresh = t.ToolTokens
	r.turn++
	w.observe(r, prompt)
	if r.turn == len(r.Turns) {
		w.end(r)
		return
	}
	r.tool = true
	w.predict(r)
	if err := w.consider(); err != nil {
		w.fail(err)
		return
	}
	w.loop.After(t.ToolNS, func() { w.request(r) })
}

func (w *world) end(r *run) {
	r.ended = true
	w.open--
	w.result.OutputTokens += r.attained
	w.result.completions = append(w.result.completions, w.loop.Now())
	w.result.MakespanNS = w.loop.Now()
	w.forget(w.workers[r.worker], r)
	if w.policy.learns() {
		w.learn(r)
	}
	w.complete(r.Group)
	if w.ended != nil {
		w.ended(r)
	}
	if err := w.consider(); err != nil {
		w.fail(err)
	}
}
