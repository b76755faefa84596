package ui

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
	"rota/api/rights"
)

// callTimeout bounds what a page waits for.
const callTimeout = 5 * time.Second

// thisServer is the address of calls that do not leave the process.
const thisServer = "http://this.server"

// pageRows is how many rows a page lists.
const pageRows = 100

// viewer is one request for a page, and the API as who sent it may use it.
type viewer struct {
	ui    *UI
	ctx   context.Context
	path  string
	id    string
	query url.Values
	// session is that of a browser that logged in; nil without one.
	session *session
	// certificate is the name of that of the request, bearer its token or JWT, or that of the session;
	// empty without one.
	certificate, bearer string
	// guest: the request came over TLS without a certificate.
	guest bool

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
	who          rotav1connect.AccessServiceClient
}

// user tells who looks at a page from others; empty without an identity.
func (v *viewer) user() string {
	switch {
	case v.certificate != "":
		return "certificate " + v.certificate
	case v.bearer != "":
		secret := sha256.Sum256([]byte(v.bearer))
		return string(secret[:])
	}
	return ""
}

func newViewer(u *UI, r *http.Request, id string) *viewer {
	v := &viewer{ui: u, ctx: r.Context(), path: r.URL.Path, id: id, query: r.URL.Query(), session: u.sessions.find(r, time.Now())}
	v.certificate, v.bearer = pki.PeerName(r.TLS), u.bearer(r)
	v.guest = r.TLS != nil && len(r.TLS.PeerCertificates) == 0
	c := u.api(r, v.bearer)
	base, opt := thisServer, codec.ForClient()
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
	v.who = rotav1connect.NewAccessServiceClient(c, base, opt)
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

// callIfAllowed is call for a part of a page that stays empty for those who may not read it.
func callIfAllowed[Q, A any](v *viewer, err *error, fn func(context.Context, *Q) (*A, error), q *Q) *A {
	if *err != nil {
		return new(A)
	}
	answer := call(v, err, fn, q)
	if connect.CodeOf(*err) == connect.CodePermissionDenied {
		*err = nil
	}
	return answer
}

// mayCount reports whether the viewer may know how many actions and trajectories there are in all
// namespaces, which is what the charts show.
func (v *viewer) mayCount() bool {
	var err error
	may := rights.NewSet(call(v, &err, v.who.GetAccess, &rotav1.GetAccessRequest{AllowStale: true}).Rules)
	return may.Allows("action", rights.Read, "") && may.Allows("trajectory", rights.Read, "")
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
