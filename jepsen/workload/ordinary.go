package workload

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
	"rota/jepsen/workload/witness"
)

// ordinaryWork is what each action of the ordinary load does.
const ordinaryWork = 5 * time.Millisecond

// ordinaryMax is when its client gives up.
const ordinaryMax = time.Minute

// Ordinary is a load of actions that are all alike, for scenarios that measure how long
// they take. It is not in All: there, what an action takes would say little.
func Ordinary() Workload {
	return Workload{"ordinary", "submits actions of the same size through the client library, and waits for each", 40, ordinary}
}

// Named returns the workload of a name, which must be one of All.
func Named(name string) Workload {
	for _, w := range All() {
		if w.Name == name {
			return w
		}
	}
	panic("there is no workload " + name)
}

func ordinary(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil {
		return errNoWitness
	}
	api, err := env.library()
	if err != nil {
		return fmt.Errorf("ordinary: %w", err)
	}
	defer api.Close()
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		// One that has begun is waited for, though the load has ended: none is to be lost.
		return func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ordinaryMax)
			defer cancel()
			w.turnAround(ctx, api)
		}
	})
}

// turnAround submits one action, and records when and how it ended.
func (w *worker) turnAround(ctx context.Context, api *client.Client) {
	t := history.Turnaround{Start: w.env.Record.Now()}
	action, err := w.submitAndWait(ctx, api, w.newOrdinary(ctx))
	t.End, t.Action, t.Attempt = w.env.Record.Now(), action.GetId(), action.GetAttempt()
	if err != nil {
		t.Error = err.Error()
	} else {
		t.State = actionState(action.State)
	}
	w.env.Record.AddTurnaround(t)
}

func (w *worker) newOrdinary(ctx context.Context) *request {
	id := w.requestID()
	resources := &rotav1.Resources{Cores: proto.Uint32(1)}
	return &request{message: &rotav1.SubmitActionsRequest{
		RequestId: id, ExpireTime: w.env.clock.expiry(ctx, w),
		Actions: []*rotav1.ActionSpec{{
			Name: fmt.Sprintf("%s/0", id), Pool: w.env.Pool, Resources: resources,
			Command: w.env.Witness.Command(id, asked(resources), witness.Work{For: ordinaryWork}),
		}},
	}}
}
