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
	// certificate is the name of that of the request; empty without one.
	certificate string
	// access is who looks, and may what that caller may do, as of the last look; leftOut has the nouns
	// of the parts that the page leaves out since then, as the caller may not read them.
	access  *rotav1.GetAccessResponse
	may     rights.Set
	leftOut map[string]bool

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

// look asks who looks and what that caller may do. Each refresh begins with it.
func (v *viewer) look() (err error) {
	v.access = call(v, &err, v.who.GetAccess, &rotav1.GetAccessRequest{AllowStale: true})
	v.may, v.leftOut = rights.NewSet(v.access.Rules), map[string]bool{}
	return err
}

// gone reports whether an error says that the viewer has to log in, again or at all.
func (v *viewer) gone(err error) bool {
	return v.certificate == "" && connect.CodeOf(err) == connect.CodeUnauthenticated
}

// user tells callers apart, whatever secret each has at the moment: a JWT is renewed every few
// minutes.
func user(who *rotav1.GetAccessResponse) string { return who.CallerKind + " " + who.Caller }

func newViewer(u *UI, r *http.Request, id string) *viewer {
	v := &viewer{ui: u, ctx: r.Context(), path: r.URL.Path, id: id, query: r.URL.Query(), session: u.sessions.find(r, time.Now())}
	v.certificate = pki.PeerName(r.TLS)
	c := u.api(r, u.bearer(r))
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

// callIf is call for a part of a page that stays empty for those who may not read it. A call that would
// be refused is not made: the audit log has a record of each refusal.
func callIf[Q, A any](may bool, v *viewer, err *error, fn func(context.Context, *Q) (*A, error), q *Q) *A {
	if !may {
		return new(A)
	}
	return call(v, err, fn, q)
}

// mayRead reports whether the viewer may read a noun in a namespace, or in any if none is named. If
// not, the page says that it leaves the noun out.
func (v *viewer) mayRead(noun, namespace string) bool {
	may := v.may.Allows(noun, rights.Read, namespace) || namespace == "" && v.may.AllowsSomewhere(noun, rights.Read)
	if !may {
		v.leftOut[noun] = true
	}
	return may
}

// mayCount reports whether the viewer may know how many actions and trajectories there are in all
// namespaces, which is what the charts show.
func (v *viewer) mayCount() bool {
	return v.may.Allows("action", rights.Read, "") && v.may.Allows("trajectory", rights.Read, "")
}

// idNumber is the ID in the path.
func (v *viewer) idNumber() (uint64, error) {
	id, err := strconv.ParseUint(v.id, 10, 64)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, errNotANumber)
	}
	return id, nil
}

// slots is how many slots of the ledger are asked for; 0: the server chooses.
func (v *viewer) slots() (uint32, error) {
	text := v.query.Get("slots")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, connect.NewError(connect.CodeInvalidArgument, errNoSlots)
	}
	return uint32(n), nil
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
