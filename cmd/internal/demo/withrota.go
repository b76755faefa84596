package demo

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// withRota runs actions on the cluster.
type withRota struct {
	api     *client.Client
	env     map[string]string
	witness witness

	mu sync.Mutex
	// acknowledged are all actions whose submission returned OK.
	acknowledged []uint64
	submitted    int
}

func (w *withRota) open(ctx context.Context, t trajectory) (actFunc, func(), error) {
	opened, err := w.api.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Name: t.name})
	if err != nil {
		return nil, nil, err
	}
	act := func(ctx context.Context, t turn) (sample, error) { return w.act(ctx, opened.Id, t) }
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// The demo's cluster ends soon, and the trajectory with it.
		_, _ = w.api.CloseTrajectory(ctx, opened.Id)
	}
	return act, end, nil
}

func (w *withRota) act(ctx context.Context, trajectory uint64, t turn) (sample, error) {
	w.mu.Lock()
	w.submitted++
	w.mu.Unlock()
	began := time.Now()
	ids, err := w.api.Submit(ctx, &rotav1.ActionSpec{
		TrajectoryId: trajectory,
		Name:         t.argv[1],
		Command:      &rotav1.Command{Argv: w.witness.wrap(t.argv), Env: w.env},
		Resources:    &rotav1.Resources{Cores: proto.Uint32(1), MaxCores: t.maxCores},
	})
	if err != nil {
		return sample{}, err
	}
	w.mu.Lock()
	w.acknowledged = append(w.acknowledged, ids[0])
	w.mu.Unlock()
	action, err := w.api.Wait(ctx, ids[0])
	if err != nil {
		return sample{}, err
	}
	return sample{
		id:        action.Id,
		succeeded: succeeded(action),
		act:       time.Since(began),
		queue:     action.StartTime.AsTime().Sub(action.SubmitTime.AsTime()),
		exec:      action.GetResult().GetExecDuration().AsDuration(),
	}, nil
}

func succeeded(a *rotav1.Action) bool {
	return a.State == rotav1.ActionState_ACTION_STATE_SUCCEEDED
}
