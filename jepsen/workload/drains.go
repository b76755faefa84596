package workload

import (
	"context"
	"errors"
)

var errNoNodes = errors.New("the workload has no nodes: set Env.Nodes")

// drains takes nodes out of use and back. Several workers do that to the same
// nodes, and read what came of it. Nodes are more often put back than taken out,
// so that most of them work most of the time.
func drains(ctx context.Context, env *Env, rate float64) error {
	if len(env.Nodes) == 0 {
		return errNoNodes
	}
	return env.work(ctx, rate, func(w *worker) func(context.Context) { return w.drainStep })
}

func (w *worker) drainStep(ctx context.Context) {
	w.roam()
	node := w.env.Nodes[w.rand.IntN(len(w.env.Nodes))]
	switch dice := w.rand.IntN(100); {
	case dice < 12:
		w.drain(ctx, node, true)
	case dice < 45:
		w.drain(ctx, node, false)
	default:
		w.getNode(ctx, node)
	}
}
