package workload

import (
	"context"
	"fmt"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// library submits one action after the other through the client library and
// waits for each to end: the one workload whose calls are repeated, by the
// library, for as long as it takes.
func library(ctx context.Context, env *Env, rate float64) error {
	if env.Witness == nil || env.Cores == 0 {
		return errNoWitness
	}
	api, err := env.library()
	if err != nil {
		return fmt.Errorf("library: %w", err)
	}
	defer api.Close()
	return env.work(ctx, rate, func(w *worker) func(context.Context) {
		return func(ctx context.Context) {
			_, _ = w.submitAndWait(ctx, api, w.newRequest(ctx, 0, 0, w.newJob)) // it is recorded
		}
	})
}

func (w *worker) submitAndWait(ctx context.Context, api *client.Client, q *request) (*rotav1.Action, error) {
	call := w.env.Record.Begin(history.Op{Client: w.client, Verb: history.Submit, RequestID: q.message.RequestId, Retry: q.retry})
	resp, err := api.Actions.SubmitActions(ctx, q.message)
	// Whether the answer was a replay is between the library and the server: as one
	// call, it was the first.
	call.IDs = resp.GetIds()
	finishRepeated(call, err)
	if err != nil {
		return nil, err
	}
	w.env.known.add(resp.Ids)
	id := resp.Ids[0]
	call = w.env.Record.Begin(history.Op{Client: w.client, Verb: history.Get, Target: id})
	action, err := api.Wait(ctx, id)
	if err == nil {
		call.State, call.Attempt = actionState(action.State), action.Attempt
	}
	finishRepeated(call, err)
	return action, err
}

// finishRepeated ends a call that the library may have sent several times. The
// last error says nothing about the tries before it.
func finishRepeated(call *history.Call, err error) {
	if err == nil {
		call.Finish(history.OK)
		return
	}
	_, call.Error = judge(err)
	call.Finish(history.Unknown)
}
