package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// timeoutDefault is how long a sandbox lives if its caller does not say.
	timeoutDefault = 5 * time.Minute
	// timeoutMax is the longest time that can be set at once, as for all times of the API.
	timeoutMax = 30 * 24 * time.Hour
	// placeTimeout is how long a new sandbox may wait for a node.
	placeTimeout = 20 * time.Second
	// openTimeout bounds the call that opens a sandbox, with its repetitions.
	openTimeout = 10 * time.Second
)

// handler is one method of the REST API: it returns a status and what is answered with it.
type handler func(r *http.Request, a api) (status int, body any, err error)

// restRoutes are those of the REST API.
func (e *E2B) restRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	add := func(method, path string, h handler) {
		for _, version := range []string{"", "/v2"} {
			mux.Handle(method+" "+version+path, e.rested(h))
		}
	}
	add("POST", "/sandboxes", e.create)
	add("GET", "/sandboxes/{id}", e.get)
	add("GET", "/sandboxes/{id}/metrics", e.metrics)
	add("DELETE", "/sandboxes/{id}", e.kill)
	add("POST", "/sandboxes/{id}/connect", e.connect)
	add("POST", "/sandboxes/{id}/timeout", e.setTimeout)
	add("POST", "/sandboxes/{id}/refreshes", e.refresh)
	mux.HandleFunc("GET /sandboxes", e.list)
	mux.HandleFunc("GET /v2/sandboxes", e.list)
	add("POST", "/sandboxes/{id}/pause", e.pause)
	add("POST", "/sandboxes/{id}/resume", e.resume)
	add("POST", "/sandboxes/{id}/snapshots", e.createSnapshot)
	mux.HandleFunc("GET /snapshots", e.listSnapshots)
	add("DELETE", "/templates/{id}", e.deleteSnapshot)
	add("POST", "/sandboxes/{id}/fork", e.fork)
	add("PUT", "/sandboxes/{id}/network", missing("change the network of sandboxes"))
	mux.Handle("/", e.rested(missing("serve this part of E2B's API")))
	return mux
}

// missing is a method that rota does not have.
func missing(what string) handler {
	return func(*http.Request, api) (int, any, error) {
		return 0, nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("rota does not %s", what))
	}
}

// rested makes a handler of HTTP of a method.
func (e *E2B) rested(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := e.apiFor(r, r.Header.Get(keyHeader))
		if err := a.receive(w, r); err != nil {
			failWith(w, err)
			return
		}
		status, body, err := h(r, a)
		switch {
		case err != nil:
			failWith(w, err)
		case body == nil:
			w.WriteHeader(status)
		default:
			answer(w, status, body)
		}
	})
}

// receive reads the body of a request, which must arrive in time. Before, it makes sure that its
// caller has an identity: strangers are not to spend the memory of the server.
func (a api) receive(w http.ResponseWriter, r *http.Request) error {
	if r.Body == http.NoBody {
		return nil
	}
	if _, err := a.access.GetAccess(r.Context(), &rotav1.GetAccessRequest{AllowStale: true}); err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(arrivalMax)) // some tests have no connection
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the request took more than %s to arrive", arrivalMax))
	case err != nil:
		return invalid("the body cannot be read: %v", err)
	}
	_ = control.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return nil
}

// decode decodes the body of a request, which is one value of JSON.
func decode(r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return invalid("the content type must be application/json")
	}
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return invalid("the body is not the JSON that is expected here: %v", err)
	}
	return nil
}

// decodeAny is decode for a request that may have no body.
func decodeAny(r *http.Request, into any) error {
	if r.Body == http.NoBody || r.ContentLength == 0 { // a length that is not known is -1
		return nil
	}
	return decode(r, into)
}

// newSandbox is the body of a request for a sandbox. What is not here is ignored, as it changes
// nothing that a program would notice.
type newSandbox struct {
	TemplateID string            `json:"templateID"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	Timeout    *int64            `json:"timeout"`
	AutoPause  bool              `json:"autoPause"`
	AutoResume *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             json.RawMessage   `json:"network"`
	IAM                 json.RawMessage   `json:"iam"`
	MCP                 json.RawMessage   `json:"mcp"`
	VolumeMounts        []json.RawMessage `json:"volumeMounts"`
}

// check refuses what a program relies on and does not get.
func (n *newSandbox) check() error {
	for what, asked := range map[string]bool{
		"keep a sandbox from the network": n.AllowInternetAccess != nil && !*n.AllowInternetAccess,
		"have rules for the network":      isSet(n.Network),
		"have workload identities":        isSet(n.IAM),
		"run MCP servers in sandboxes":    isSet(n.MCP),
		"mount volumes":                   len(n.VolumeMounts) > 0,
	} {
		if asked {
			return invalid("rota does not %s: leave that out", what)
		}
	}
	for key := range n.Metadata {
		if isOwn(key) {
			return invalid("the metadata %q is rota's own", key)
		}
	}
	return nil
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// create opens a trajectory and waits until it has a node.
func (e *E2B) create(r *http.Request, a api) (int, any, error) {
	var n newSandbox
	if err := decode(r, &n); err != nil {
		return 0, nil, err
	}
	timeout, err := timeoutOf(n.Timeout)
	if err == nil {
		err = n.check()
	}
	if err != nil {
		return 0, nil, err
	}
	name, t, snapshot, err := e.madeOf(r.Context(), a, n.TemplateID)
	if err != nil {
		return 0, nil, err
	}
	if timeout == 0 {
		return 0, nil, invalid("the timeout of a new sandbox must be at least a second")
	}
	labels := map[string]string{templateLabel: name}
	if n.AutoResume != nil && n.AutoResume.Enabled {
		labels[resumeLabel] = "true"
	}
	for key, value := range n.Metadata {
		labels[key] = value
	}
	opened, err := open(r.Context(), a, &rotav1.OpenTrajectoryRequest{
		RequestId: "e2b-" + rand.Text(),
		Namespace: r.Header.Get(namespaceHeader), Pool: t.Pool, MemoryBytes: t.MemoryBytes, Labels: labels,
		Timeout: durationpb.New(timeout), Spec: &rotav1.TrajectorySpec{Env: n.EnvVars}, SnapshotId: snapshot, PauseAtTimeout: n.AutoPause,
	})
	if err != nil {
		return 0, nil, err
	}
	placed, err := placed(r.Context(), a, opened)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, newStarted(r, placed), nil
}

// detached is for a call that has to end also if the caller leaves meanwhile.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
}

// open opens a trajectory, and learns its ID also if the caller leaves meanwhile: nobody else
// could close it then.
func open(ctx context.Context, a api, req *rotav1.OpenTrajectoryRequest) (*rotav1.Trajectory, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	resp, err := a.trajectories.OpenTrajectory(ctx, req)
	return resp.GetTrajectory(), err
}

// placed waits until a trajectory has a node. It closes one that gets none, or whose caller has
// left.
func placed(ctx context.Context, a api, t *rotav1.Trajectory) (*rotav1.Trajectory, error) {
	waiting, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	for pause := 10 * time.Millisecond; t.State == rotav1.TrajectoryState_TRAJECTORY_STATE_PENDING; pause = min(2*pause, time.Second) {
		select {
		case <-time.After(pause):
		case <-waiting.Done():
			return nil, giveUp(ctx, a, t)
		}
		resp, err := a.trajectories.GetTrajectory(waiting, &rotav1.GetTrajectoryRequest{Id: t.Id, AllowStale: true})
		switch {
		case waiting.Err() != nil:
			return nil, giveUp(ctx, a, t)
		case err != nil:
			abandon(ctx, a, t)
			return nil, err
		}
		t = resp.Trajectory
	}
	switch {
	case ctx.Err() != nil:
		return nil, giveUp(ctx, a, t)
	case !isRunning(t):
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("sandbox %s ended before it had a node: its time was over, or somebody closed it", sandboxID(t.Id)))
	}
	return t, nil
}

// abandon closes a trajectory of which its caller will not hear, also if the caller has left.
func abandon(ctx context.Context, a api, t *rotav1.Trajectory) {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, _ = a.trajectories.CloseTrajectory(ctx, &rotav1.CloseTrajectoryRequest{Id: t.Id}) // its deadline closes it otherwise
}

// giveUp abandons a trajectory that got no node in time.
func giveUp(ctx context.Context, a api, t *rotav1.Trajectory) error {
	abandon(ctx, a, t)
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("no node of pool %s has %d MiB of free memory for the sandbox: kill others, or add a node", t.Pool, t.MemoryBytes>>20))
}

// timeoutOf is the time that a body names, in seconds.
func timeoutOf(seconds *int64) (time.Duration, error) {
	if seconds == nil {
		return timeoutDefault, nil
	}
	if *seconds < 0 || *seconds > int64(timeoutMax/time.Second) {
		return 0, invalid("the timeout must be 0 to %d seconds", int64(timeoutMax/time.Second))
	}
	return time.Duration(*seconds) * time.Second, nil
}

// of returns the trajectory that a request names. One that has ended is no sandbox.
func of(r *http.Request, a api) (*rotav1.Trajectory, error) {
	id, ok := trajectoryOf(r.PathValue("id"))
	if !ok {
		return nil, notFound(r.PathValue("id"))
	}
	resp, err := a.trajectories.GetTrajectory(r.Context(), &rotav1.GetTrajectoryRequest{Id: id})
	if err == nil && !isRunning(resp.Trajectory) && resp.Trajectory.State != rotav1.TrajectoryState_TRAJECTORY_STATE_PENDING || isHidden(err) {
		err = notFound(r.PathValue("id"))
	}
	return resp.GetTrajectory(), err
}

func (e *E2B) get(r *http.Request, a api) (int, any, error) {
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, newDetails(r, t, e.opts.Templates.of(t)), nil
}

func (e *E2B) kill(r *http.Request, a api) (int, any, error) {
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	_, err = a.trajectories.CloseTrajectory(r.Context(), &rotav1.CloseTrajectoryRequest{Id: t.Id})
	if isEnded(err) {
		err = nil // by this call, if it was repeated, or by another one at the same time
	}
	return http.StatusNoContent, nil, err
}

// connect returns a sandbox again, and has it live for at least the time that is asked for. One that
// is paused goes on.
func (e *E2B) connect(r *http.Request, a api) (int, any, error) {
	timeout, t, err := e.extension(r, a, "timeout")
	if err != nil {
		return 0, nil, err
	}
	if resumed, err := goOn(r, a, t, timeout, true); resumed || err != nil {
		return http.StatusCreated, newStarted(r, t), err
	}
	if t, err = extendBy(r, a, t, timeout, true); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, newStarted(r, t), nil
}

func (e *E2B) setTimeout(r *http.Request, a api) (int, any, error) {
	_, err := e.extend(r, a, "timeout", false)
	return http.StatusNoContent, nil, err
}

func (e *E2B) refresh(r *http.Request, a api) (int, any, error) {
	_, err := e.extend(r, a, "duration", true)
	return http.StatusNoContent, nil, err
}

// extend sets when a sandbox ends. A time of 0 ends it now.
func (e *E2B) extend(r *http.Request, a api, field string, onlyLater bool) (*rotav1.Trajectory, error) {
	timeout, t, err := e.extension(r, a, field)
	if err != nil {
		return nil, err
	}
	return extendBy(r, a, t, timeout, onlyLater)
}

// extension is the time that a request asks for, and the sandbox that it names.
func (e *E2B) extension(r *http.Request, a api, field string) (time.Duration, *rotav1.Trajectory, error) {
	var body map[string]json.RawMessage
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	timeout, err := timeoutIn(body, field)
	if err != nil {
		return 0, nil, err
	}
	t, err := of(r, a)
	return timeout, t, err
}

// timeoutIn is the time that a body names in a field, in seconds.
func timeoutIn(body map[string]json.RawMessage, field string) (time.Duration, error) {
	var seconds *int64
	if raw := body[field]; isSet(raw) {
		if err := json.Unmarshal(raw, &seconds); err != nil {
			return 0, invalid("%s is a number of seconds", field)
		}
	}
	return timeoutOf(seconds)
}

func extendBy(r *http.Request, a api, t *rotav1.Trajectory, timeout time.Duration, onlyLater bool) (*rotav1.Trajectory, error) {
	if timeout == 0 && onlyLater {
		return t, nil
	}
	resp, err := a.trajectories.ExtendTrajectory(r.Context(), &rotav1.ExtendTrajectoryRequest{
		Id: t.Id, Timeout: durationpb.New(max(timeout, 1)), OnlyLater: onlyLater,
	})
	return resp.GetTrajectory(), err
}
