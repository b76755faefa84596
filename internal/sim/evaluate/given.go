package evaluate

import (
	"context"

	"rota/internal/sim/workload"
)

// Given is an input of trajectories that were not drawn, such as those of a real cluster.
// They are the batch of the parameters' only task.
func Given(p *workload.Params, trajectories []workload.Trajectory, l Latency, classless bool) (*Input, error) {
	g, err := workload.New(p, 1)
	if err != nil {
		return nil, err
	}
	return &Input{Seed: 1, Latency: l, generator: g, replayed: trajectories, first: []int{0}, told: told{classless: classless, sized: !classless}}, nil
}

// Observed is how an action went on a real cluster. Times are nanoseconds, Submitted is
// since the beginning.
type Observed struct {
	Class                       string
	Submitted, ACT, Queue, Exec int64
	Busy                        int64 // execution times cores
	Failed                      bool
	Attempts                    int64
}

// Observe is the result of a real cluster with so many cores.
func Observe(all []Observed, cores int64) *Result {
	var c recorder
	for i := range all {
		o := &all[i]
		action := workload.Action{Class: o.Class}
		c.add(o.Submitted+o.ACT, &call{
			Action: &action, submitted: o.Submitted, started: o.Submitted + o.Queue, queue: o.Queue, exec: o.Exec, busy: o.Busy, try: int(o.Attempts) - 1,
		}, !o.Failed)
	}
	return c.result(Capacity{"cpu", cores})
}

// RunAll has each of several policies work through its input, as many at a time as there
// are workers.
func RunAll(ctx context.Context, inputs []*Input, policies []string, workers int) ([]*Result, error) {
	jobs := make([]*job, len(inputs))
	for i, in := range inputs {
		jobs[i] = &job{in: in, policy: policies[i]}
	}
	if err := runAll(ctx, jobs, workers); err != nil {
		return nil, err
	}
	out := make([]*Result, len(jobs))
	for i, j := range jobs {
		out[i] = j.result
	}
	return out, nil
}
