package e2b

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// user is the one user that a sandbox has. E2B's own are called so, too.
const user = "user"

// sandbox is the trajectory that a request is for, and the API as its caller may use it.
type sandbox struct {
	api
	id        uint64
	namespace string
	template  template
	paused    bool
}

// serveEnvd answers a request for the services of a sandbox.
func (e *E2B) serveEnvd(w http.ResponseWriter, r *http.Request, id, port string) {
	if port != "" && port != envdPort {
		fail(w, http.StatusNotImplemented, "rota does not pass requests on to ports of sandboxes: run the client in the sandbox, too")
		return
	}
	if id == "" {
		fail(w, http.StatusBadRequest, "the request names no sandbox: it needs the header "+sandboxHeader+", or the host "+envdPort+"-SANDBOX.DOMAIN")
		return
	}
	if err := checkUser(r); err != nil {
		writeError(w, r, err)
		return
	}
	s, err := e.sandbox(r, id)
	switch code := connect.CodeOf(err); {
	case err == nil:
	case code == connect.CodeNotFound:
		// E2B's proxy says so, and its SDK turns that into "is not running any more".
		fail(w, http.StatusBadGateway, fmt.Sprintf("sandbox %.40q is not running: %s", id, sentence(err)))
		return
	default:
		writeError(w, r, err)
		return
	}
	e.envd.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sandboxKey{}, s)))
}

// sandbox finds the open trajectory of a request. The state of this server is enough if it has
// the trajectory.
func (e *E2B) sandbox(r *http.Request, id string) (*sandbox, error) {
	number, ok := trajectoryOf(id)
	if !ok {
		return nil, notFound(id)
	}
	s := &sandbox{api: e.apiFor(r, r.Header.Get(tokenHeader)), id: number}
	t, err := s.trajectory(r.Context(), true)
	if isHidden(err) || err == nil && !isRunning(t) {
		t, err = s.trajectory(r.Context(), false)
	}
	if isHidden(err) {
		err = notFound(id)
	}
	if err != nil {
		return nil, err
	}
	if !isRunning(t) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("trajectory %d is not open", number))
	}
	if resumes(t) && r.URL.Path != healthPath {
		if t, err = s.wake(r.Context()); err != nil {
			return nil, err
		}
	}
	s.namespace, s.template, s.paused = t.Namespace, e.opts.Templates.of(t), isPaused(t)
	return s, nil
}

func (s *sandbox) trajectory(ctx context.Context, stale bool) (*rotav1.Trajectory, error) {
	resp, err := s.trajectories.GetTrajectory(ctx, &rotav1.GetTrajectoryRequest{Id: s.id, AllowStale: stale})
	return resp.GetTrajectory(), err
}

// isRunning: it has a node, so it has a directory and can run processes.
func isRunning(t *rotav1.Trajectory) bool {
	return t.GetState() == rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN
}

// checkUser refuses users that there are not. SDKs name one by basic authentication or, for
// files, in the query.
func checkUser(r *http.Request) error {
	name := r.URL.Query().Get("username")
	if basic, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic "); ok && name == "" {
		raw, err := base64.StdEncoding.DecodeString(basic)
		if err != nil {
			return invalid("the header Authorization is not of the form that is understood")
		}
		name, _, _ = strings.Cut(string(raw), ":")
	}
	if name != "" && name != user {
		return invalid("a sandbox of rota has one user, %q, and not %.40q: leave the user out", user, name)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

// healthPath is where SDKs ask whether a sandbox runs.
const healthPath = "/health"

// health says whether a sandbox runs, to SDKs that ask.
func health(w http.ResponseWriter, r *http.Request) {
	if s := sandboxIn(r.Context()); s.paused {
		fail(w, http.StatusBadGateway, fmt.Sprintf("sandbox %s is paused", sandboxID(s.id)))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
