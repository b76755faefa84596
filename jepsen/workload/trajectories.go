package workload

import (
	"context"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// openMax is how many trajectories one worker keeps open.
const openMax = 4

// trajectoryBytes is the memory of a trajectory, enough for all of the probes that
// may run in it at the same time.
const trajectoryBytes = 64 << 20

// pilot opens trajectories, runs actions in them and closes them.
type pilot struct {
	*worker
	open []uint64
	last *rotav1.OpenTrajectoryRequest
	ever []uint64 // also closed ones, the newest
}

func trajectories(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil || env.Cores == 0 {
		return errNoWitness
	}
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		return (&pilot{worker: w}).step
	})
}

func (p *pilot) step(ctx context.Context) {
	if p.chance(5) {
		p.roam()
	}
	switch dice := p.rand.IntN(100); {
	case dice < 5 && p.last != nil:
		p.opened(p.openTrajectory(ctx, p.last))
	case dice < 25 && len(p.open) < openMax || len(p.ever) == 0:
		p.last = p.newTrajectory(ctx)
		p.opened(p.openTrajectory(ctx, p.last))
	case dice < 60:
		// Also in one that has been closed, which must be refused.
		p.submit(ctx, p.newRequest(ctx, p.any(), 20, p.newJob))
	case dice < 85:
		p.getTrajectory(ctx, p.any())
	case len(p.open) > 0:
		p.closeTrajectory(ctx, p.open[0])
		p.open = p.open[1:]
	}
}

func (p *pilot) any() uint64 { return p.ever[p.rand.IntN(len(p.ever))] }

func (p *pilot) opened(op history.Op) {
	if op.Outcome == history.OK && !op.Replayed {
		p.open = append(p.open, op.IDs...)
		p.ever = append(p.ever, op.IDs...)
		p.ever = p.ever[max(0, len(p.ever)-2*openMax):]
	}
}

func (p *pilot) newTrajectory(ctx context.Context) *rotav1.OpenTrajectoryRequest {
	id := p.requestID()
	q := &rotav1.OpenTrajectoryRequest{
		RequestId: id, ExpireTime: p.env.clock.expiry(ctx, p.worker),
		Name: id, Pool: p.env.Pool, MemoryBytes: trajectoryBytes,
	}
	if p.chance(50) { // one group of all workers, over the label of the agents
		q.SpreadGroup, q.SpreadLabel = "step", "rack"
	}
	return q
}
