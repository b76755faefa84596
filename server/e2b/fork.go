package e2b

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// forksMax bounds the sandboxes of one fork.
const forksMax = 64

// forked is what became of one sandbox of a fork.
type forked struct {
	Sandbox *started `json:"sandbox,omitempty"`
	Error   *problem `json:"error,omitempty"`
}

// fork opens sandboxes that begin with the files of another one, in which no process may run. They share
// a snapshot that nobody else sees for longer than the call lasts.
func (e *E2B) fork(r *http.Request, a api) (int, any, error) {
	body := struct {
		Count   int    `json:"count"`
		Timeout *int64 `json:"timeout"`
	}{Count: 1}
	if err := decodeAny(r, &body); err != nil {
		return 0, nil, err
	}
	timeout, err := timeoutOf(body.Timeout)
	switch {
	case err != nil:
		return 0, nil, err
	case timeout == 0:
		return 0, nil, invalid("the timeout of forks must be at least a second")
	case body.Count < 1 || body.Count > forksMax:
		return 0, nil, invalid("a fork makes 1 to %d sandboxes, not %d", forksMax, body.Count)
	}
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	s, err := begin(r.Context(), a, t)
	if err != nil {
		return 0, nil, err
	}
	defer forget(r.Context(), a, s)
	if _, err := taken(r.Context(), a, s); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, forks(r, a, t, s.Id, body.Count, timeout), nil
}

// begin asks for the snapshot of a fork, and learns its ID also if the caller leaves meanwhile.
func begin(ctx context.Context, a api, t *rotav1.Trajectory) (*rotav1.Snapshot, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	resp, err := a.snapshots.CreateSnapshot(ctx, &rotav1.CreateSnapshotRequest{RequestId: "e2b-" + rand.Text(), TrajectoryId: t.Id})
	return resp.GetSnapshot(), err
}

// forks opens sandboxes that are like another one, all at once, and waits until each has a node or has
// failed. It leaves none open if its caller has left.
func forks(r *http.Request, a api, like *rotav1.Trajectory, snapshot uint64, count int, timeout time.Duration) []forked {
	out, opened := make([]forked, count), make([]*rotav1.Trajectory, count)
	var all sync.WaitGroup
	for i := range out {
		all.Go(func() {
			t, err := open(r.Context(), a, &rotav1.OpenTrajectoryRequest{
				RequestId: "e2b-" + rand.Text(), Namespace: like.Namespace, MemoryBytes: like.MemoryBytes, Labels: like.Labels,
				Timeout: durationpb.New(timeout), SnapshotId: snapshot, PauseAtTimeout: like.PauseAtTimeout,
			})
			if err == nil {
				t, err = placed(r.Context(), a, t)
			}
			if err != nil {
				out[i].Error = &problem{statusOf(err), sentence(err)}
				return
			}
			s := newStarted(r, t)
			out[i].Sandbox, opened[i] = &s, t
		})
	}
	all.Wait()
	for _, t := range opened {
		if t != nil && r.Context().Err() != nil {
			abandon(r.Context(), a, t)
		}
	}
	return out
}

// forget deletes the snapshot of a fork, also if its caller has left. What began with it keeps its files.
func forget(ctx context.Context, a api, s *rotav1.Snapshot) {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, _ = a.snapshots.DeleteSnapshot(ctx, &rotav1.DeleteSnapshotRequest{Id: s.GetId()}) // it is listed then, and somebody else can
}
