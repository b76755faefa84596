package ui

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// callTimeout bounds what a page waits for.
const callTimeout = 5 * time.Second

// pageRows is how many rows a page lists.
const pageRows = 100

// viewer is one request for a page, and the API as who sent it may use it.
type viewer struct {
	ui    *UI
	ctx   context.Context
	path  string
	id    string
	query url.Values

	actions      rotav1connect.ActionServiceClient
	trajectories rotav1connect.TrajectoryServiceClient
	nodes        rotav1connect.NodeServiceClient
	quotas       rotav1connect.QuotaServiceClient
	residency    rotav1connect.ResidencyServiceClient
	ledger       rotav1connect.LedgerServiceClient
	jobs         rotav1connect.JobServiceClient
	rollouts     rotav1connect.RolloutServiceClient
	workers      rotav1connect.WorkerServiceClient
	operator     rotav1connect.OperatorServiceClient
}

func newViewer(u *UI, r *http.Request, id string) *viewer {
	v := &viewer{ui: u, ctx: r.Context(), path: r.URL.Path, id: id, query: r.URL.Query()}
	c := httpx.InProcess{API: u.opts.API, For: r, Authorization: r.Header.Get("Authorization")}
	base, opt := "http://this.server", codec.ForClient()
	v.actions = rotav1connect.NewActionServiceClient(c, base, opt)
	v.trajectories = rotav1connect.NewTrajectoryServiceClient(c, base, opt)
	v.nodes = rotav1connect.NewNodeServiceClient(c, base, opt)
	v.quotas = rotav1connect.NewQuotaServiceClient(c, base, opt)
	v.residency = rotav1connect.NewResidencyServiceClient(c, base, opt)
	v.ledger = rotav1connect.NewLedgerServiceClient(c, base, opt)
	v.jobs = rotav1connect.NewJobServiceClient(c, base, opt)
	v.rollouts = rotav1connect.NewRolloutServiceClient(c, base, opt)
	v.workers = rotav1connect.NewWorkerServiceClient(c, base, opt)
	v.operator = rotav1connect.NewOperatorServiceClient(c, base, opt)
	return v
}

// call makes one call and stores its answer, unless one before it has failed.
func call[Q, A any](v *viewer, err *error, fn func(context.Context, *Q) (*A, error), q *Q) (answer *A) {
	if *err != nil {
		return new(A)
	}
	ctx, cancel := context.WithTimeout(v.ctx, callTimeout)
	defer cancel()
	if answer, *err = fn(ctx, q); *err != nil {
		return new(A)
	}
	return answer
}

// idNumber is the ID in the path.
func (v *viewer) idNumber() (uint64, error) {
	id, err := strconv.ParseUint(v.id, 10, 64)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, errNotANumber)
	}
	return id, nil
}

// namespace is the one that is asked for; all of them if none is.
func (v *viewer) namespace() string {
	if ns := v.query.Get("namespace"); ns != "" {
		return ns
	}
	return "*"
}

// oneNamespace is the one that is asked for, "default" if none is: some nouns are listed by it.
func (v *viewer) oneNamespace() string {
	if ns := v.query.Get("namespace"); ns != "" {
		return ns
	}
	return "default"
}

// next is the address of the next page of a list, empty after the last.
func (v *viewer) next(token string) string {
	if token == "" {
		return ""
	}
	q := url.Values{}
	for k, values := range v.query {
		q[k] = values
	}
	q.Set("page", token)
	return v.path + "?" + q.Encode()
}

// statesOf is the filter of a list of actions.
func statesOf(name string) []rotav1.ActionState {
	switch name {
	case "", "queued":
		return []rotav1.ActionState{rotav1.ActionState_ACTION_STATE_QUEUED}
	case "running":
		return []rotav1.ActionState{rotav1.ActionState_ACTION_STATE_RUNNING}
	case "ended":
		return endedStates
	case "failed":
		return endedStates[1:]
	}
	return nil
}

// endedStates are the final ones; the first is success.
var endedStates = []rotav1.ActionState{
	rotav1.ActionState_ACTION_STATE_SUCCEEDED, rotav1.ActionState_ACTION_STATE_FAILED,
	rotav1.ActionState_ACTION_STATE_CANCELED, rotav1.ActionState_ACTION_STATE_LOST, rotav1.ActionState_ACTION_STATE_EXPIRED,
}
