package workload

import (
	"context"
	"errors"
	"fmt"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// heldMax is how many actions of one worker wait at most.
const heldMax = 32

var errNoHeldPool = errors.New("the workload has no pool without nodes: set Env.HeldPool")

// holder submits what no node will run, which costs a cluster little more than
// the commits, and cancels it.
type holder struct {
	*worker
	waiting []uint64 // oldest first
	last    *request
}

func held(ctx context.Context, env *Env, rate float64) error {
	if env.HeldPool == "" || env.HeldPool == env.Pool {
		return errNoHeldPool
	}
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		return (&holder{worker: w}).step
	})
}

func (h *holder) step(ctx context.Context) {
	if h.chance(1) {
		h.roam()
	}
	switch dice := h.rand.IntN(100); {
	case len(h.waiting) >= heldMax, dice < 40 && len(h.waiting) > 0:
		// One whose cancel is uncertain is left to the end of the run.
		h.cancel(ctx, h.waiting[0])
		h.waiting = h.waiting[1:]
	case dice < 50 && h.last != nil:
		h.accepted(h.submit(ctx, h.last))
	default:
		h.last = h.env.newHeld(ctx, h.worker)
		h.accepted(h.submit(ctx, h.last))
	}
}

func (h *holder) accepted(op history.Op) {
	if !op.Replayed {
		h.waiting = append(h.waiting, op.IDs...)
	}
}

// newHeld makes a submission of one action that waits until it is canceled.
func (env *Env) newHeld(ctx context.Context, w *worker) *request {
	id := w.requestID()
	return &request{message: &rotav1.SubmitActionsRequest{
		RequestId: id, ExpireTime: env.clock.expiry(ctx, w),
		Actions: []*rotav1.ActionSpec{{
			Name: fmt.Sprintf("%s/0", id), Pool: env.HeldPool,
			Command: &rotav1.Command{Argv: []string{"false"}},
		}},
	}}
}
