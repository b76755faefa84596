package workload

import "context"

// reads asks any server about actions that other workloads have submitted.
func reads(ctx context.Context, env *Env, rate float64) error {
	return env.work(ctx, rate, func(w *worker) func(context.Context) { return w.readStep })
}

func (w *worker) readStep(ctx context.Context) {
	w.roam()
	id := w.env.known.pick(w.rand)
	switch dice := w.rand.IntN(100); {
	case dice < 15 || id == 0:
		w.status(ctx)
	case dice < 17:
		w.list(ctx)
	case dice < 35:
		w.get(ctx, id, true)
	default:
		w.get(ctx, id, false)
	}
}
