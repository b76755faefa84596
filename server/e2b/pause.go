package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// freezeTimeout is how long a pause may take until all processes are frozen.
const freezeTimeout = 20 * time.Second

// isPaused: the sandbox is paused, or about to be.
func isPaused(t *rotav1.Trajectory) bool {
	switch t.GetPause() {
	case rotav1.PauseState_PAUSE_STATE_PAUSING, rotav1.PauseState_PAUSE_STATE_PAUSED:
		return true
	}
	return false
}

// stateOf is the state of a sandbox in E2B's words.
func stateOf(t *rotav1.Trajectory) string {
	if isPaused(t) {
		return "paused"
	}
	return "running"
}

// pause freezes all processes of a sandbox, and answers when they are frozen. A sandbox that was paused
// before gets 409, which the SDK tells its caller as false. One that ran when the request arrived does
// not: its pause may have been asked of the cluster twice, after an answer that was lost.
func (e *E2B) pause(r *http.Request, a api) (int, any, error) {
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	var body struct {
		Memory *bool `json:"memory"`
	}
	if err := decodeAny(r, &body); err != nil {
		return 0, nil, err
	}
	if body.Memory != nil && !*body.Memory {
		return 0, nil, invalid("rota pauses processes with their memory: leave memory out, or kill the processes before the pause")
	}
	resp, err := a.trajectories.PauseTrajectory(r.Context(), &rotav1.PauseTrajectoryRequest{Id: t.Id})
	if err != nil {
		return 0, nil, err
	}
	err = frozen(r.Context(), a, resp.Trajectory)
	if err == nil && isPaused(t) && !resp.Changed {
		err = connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("sandbox %s is paused already", sandboxID(t.Id)))
	}
	return http.StatusNoContent, nil, err
}

// frozen waits until nothing of a paused sandbox runs.
func frozen(ctx context.Context, a api, t *rotav1.Trajectory) error {
	waiting, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	for pause := 5 * time.Millisecond; t.Pause == rotav1.PauseState_PAUSE_STATE_PAUSING; pause = min(2*pause, time.Second) {
		select {
		case <-time.After(pause):
		case <-waiting.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the sandbox is paused, and its node has not frozen all of its processes yet"))
		}
		resp, err := a.trajectories.GetTrajectory(waiting, &rotav1.GetTrajectoryRequest{Id: t.Id, AllowStale: true})
		if err != nil {
			return err
		}
		t = resp.Trajectory
	}
	return nil
}

// resume lets a paused sandbox go on, with the time that is asked for.
func (e *E2B) resume(r *http.Request, a api) (int, any, error) {
	var body map[string]json.RawMessage
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	timeout, err := timeoutIn(body, "timeout")
	if err != nil {
		return 0, nil, err
	}
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	if asked := body["autoPause"]; isSet(asked) && string(asked) != strconv.FormatBool(t.PauseAtTimeout) {
		return 0, nil, invalid("whether a sandbox is paused when its time is over is said when it is created: leave autoPause out")
	}
	paused, err := goOn(r, a, t, timeout, false)
	if err == nil && !paused {
		err = connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("sandbox %s is not paused", sandboxID(t.Id)))
	}
	return http.StatusCreated, newStarted(r, t), err
}

// resumeLabel is the label of a trajectory that is resumed when somebody uses it.
const resumeLabel = "e2b/auto-resume"

func resumes(t *rotav1.Trajectory) bool { return t.GetLabels()[resumeLabel] == "true" }

// wake has a sandbox go on if it is paused, as somebody uses it. Who may only read does not resume it,
// and reads its files.
func (s *sandbox) wake(ctx context.Context) (*rotav1.Trajectory, error) {
	t, err := s.trajectory(ctx, false)
	if err != nil || !isPaused(t) {
		return t, err
	}
	resp, err := s.trajectories.ResumeTrajectory(ctx, &rotav1.ResumeTrajectoryRequest{Id: s.id})
	switch {
	case connect.CodeOf(err) == connect.CodePermissionDenied:
		return t, nil
	case err != nil:
		return nil, err
	}
	return resp.Trajectory, nil
}

// goOn resumes a sandbox, which then lives for a time, or for at least that. The time is set first,
// so that the sandbox does not end in between.
// It reports whether it was paused: that the cluster changes nothing may be the second try's answer.
func goOn(r *http.Request, a api, t *rotav1.Trajectory, timeout time.Duration, atLeast bool) (paused bool, err error) {
	if !isPaused(t) {
		return false, nil
	}
	if _, err = extendBy(r, a, t, timeout, atLeast); err != nil {
		return false, err
	}
	_, err = a.trajectories.ResumeTrajectory(r.Context(), &rotav1.ResumeTrajectoryRequest{Id: t.Id})
	return true, err
}
