package evaluate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// policy decides when actions run, and with how much. What it is told about comes
// from a world, which it tells in turn when a call has ended.
type policy interface {
	// begin says that a rollout has begun, end that it is over.
	begin(r *rollout)
	end(r *rollout)
	// submit hands over a call of a rollout that has begun. The policy calls
	// world.ended once it is done.
	submit(c *call)
	// capacity is how much there is of the resource that utilisation is of.
	capacity() Capacity
}

// Capacity is how many units there are of a resource: "cpu" or "gpu".
type Capacity struct {
	Resource string `json:"resource"`
	Units    int64  `json:"units"`
}

// rollout is a trajectory on its way.
type rollout struct {
	workload.Trajectory
	task  int
	turn  int
	begun int64
	// ready is when its sandbox is open; 0: it has none, or no node yet.
	ready int64
}

// key is what draws for a rollout go by.
func (r *rollout) key() int64 { return int64(r.Step)<<36 | int64(r.Number)<<12 }

// call is an action from its submission to its end, with all its tries.
type call struct {
	*workload.Action
	r   *rollout
	try int
	// submitted is when the action was, started when its newest try began to
	// execute. Queue and exec are sums over all tries.
	submitted, started int64
	queue, exec        int64
	// busy is the time of its key resource that it used, times the units.
	busy int64
	// resizes counts how often it was given other cores.
	resizes int64
	// forecast is about the start of its first try.
	forecast forecast
}

// world is one run: virtual time, rollouts and the policy that serves them.
type world struct {
	loop   sim.Loop
	in     *Input
	policy policy
	record recorder
	ctx    context.Context
	err    error
	// left counts the rollouts of each task's step that are not over, tasks those
	// that have steps left.
	left  []int64
	tasks int
	begun []int64 // when the step of each task began
}

// Run lets a policy work through the input.
func Run(ctx context.Context, in *Input, name string) (*Result, error) {
	w := &world{in: in, ctx: ctx}
	p, err := newPolicy(w, name)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	w.policy = p
	tasks := in.generator.Params().Tasks
	w.left, w.begun, w.tasks = make([]int64, len(tasks)), make([]int64, len(tasks)), len(tasks)
	for task := range tasks {
		w.beginStep(task, 0)
	}
	w.loop.Run(math.MaxInt64)
	if w.err == nil && w.tasks > 0 {
		w.err = errors.New("nothing goes on, but trajectories are not over: what they wait for never comes")
	}
	if w.err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, w.err)
	}
	return w.record.result(p.capacity()), nil
}

// fail ends the run.
func (w *world) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	w.loop.Halt()
}

// beginStep lets all rollouts of a step begin.
func (w *world) beginStep(task, step int) {
	batch := w.in.generator.Params().Tasks[task].Batch.Value
	w.left[task] = int64(batch)
	w.begun[task] = w.loop.Now()
	for number := range int(batch) {
		r := &rollout{task: task}
		w.in.fill(r, step, number)
		w.loop.After(r.Start, func() { w.begin(r) })
	}
}

func (w *world) begin(r *rollout) {
	if err := w.ctx.Err(); err != nil {
		w.fail(err)
		return
	}
	r.begun = w.loop.Now()
	w.policy.begin(r)
	w.next(r)
}

// next lets the language model think, and then submit the next action.
func (w *world) next(r *rollout) {
	switch {
	case r.turn == len(r.Turns) && r.After > 0:
		w.loop.After(r.After, func() { w.over(r) })
		return
	case r.turn == len(r.Turns):
		w.over(r)
		return
	}
	t := &r.Turns[r.turn]
	r.turn++
	w.loop.After(t.Think, func() {
		w.policy.submit(&call{Action: &t.Action, r: r, submitted: w.loop.Now()})
	})
}

// opening is how long a call that could start at a time has to wait for the sandbox of its rollout, which opens
// ahead of the first call on cores.
func (w *world) opening(c *call, at int64) int64 {
	if !onCPUs(c.Action) {
		return 0
	}
	return max(0, c.r.ready-at)
}

// ended tells that the newest try of a call has ended. One that failed is tried
// again, as often as the workload says.
func (w *world) ended(c *call, ok bool) {
	if calls := w.in.generator.Params().Baseline.Calls; !ok && calls != nil && c.try < int(calls.Retries.Value) {
		pause := int64(calls.Backoff.Value) << c.try
		c.try++
		w.loop.After(pause, func() { w.policy.submit(c) })
		return
	}
	w.record.add(w.loop.Now(), c, ok)
	w.next(c.r)
}

// over ends a rollout and, with the last one, its step.
func (w *world) over(r *rollout) {
	w.policy.end(r)
	w.record.over(r)
	w.in.progressed()
	if w.left[r.task]--; w.left[r.task] > 0 {
		return
	}
	w.record.step(r.task, w.loop.Now()-w.begun[r.task])
	task := &w.in.generator.Params().Tasks[r.task]
	if next := r.Step + 1; next < int(task.Steps.Value) {
		w.loop.After(int64(task.Train.Value), func() { w.beginStep(r.task, next) })
		return
	}
	if w.tasks--; w.tasks == 0 {
		w.loop.Halt()
	}
}
