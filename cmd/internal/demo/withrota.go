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
	began := time.Now()
	spec := w.spec(t.argv)
	spec.TrajectoryId, spec.Name = trajectory, t.argv[1]
	spec.Resources = &rotav1.Resources{Cores: proto.Uint32(1), MaxCores: t.maxCores}
	actions, err := w.run(ctx, spec)
	if err != nil {
		return sample{}, err
	}
	action := actions[0]
	return sample{
		id:        action.Id,
		succeeded: succeeded(action),
		act:       time.Since(began),
		queue:     action.StartTime.AsTime().Sub(action.SubmitTime.AsTime()),
		exec:      action.GetResult().GetExecDuration().AsDuration(),
	}, nil
}

// spec is an action that bears witness.
func (w *withRota) spec(argv []string) *rotav1.ActionSpec {
	return &rotav1.ActionSpec{Command: &rotav1.Command{Argv: w.witness.wrap(argv), Env: w.env}}
}

// submit submits actions together, and remembers what was acknowledged.
func (w *withRota) submit(ctx context.Context, specs ...*rotav1.ActionSpec) ([]uint64, error) {
	w.mu.Lock()
	w.submitted += len(specs)
	w.mu.Unlock()
	ids, err := w.api.Submit(ctx, specs...)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.acknowledged = append(w.acknowledged, ids...)
	w.mu.Unlock()
	return ids, nil
}

// run submits actions together and returns them when all have ended.
func (w *withRota) run(ctx context.Context, specs ...*rotav1.ActionSpec) ([]*rotav1.Action, error) {
	ids, err := w.submit(ctx, specs...)
	if err != nil {
		return nil, err
	}
	ended := make([]*rotav1.Action, len(ids))
	for i, id := range ids {
		if ended[i], err = w.api.Wait(ctx, id); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

func succeeded(a *rotav1.Action) bool {
	return a.State == rotav1.ActionState_ACTION_STATE_SUCCEEDED
}
