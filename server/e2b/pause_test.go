package e2b

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

func (c *cluster) PauseTrajectory(_ context.Context, req *rotav1.PauseTrajectoryRequest) (*rotav1.PauseTrajectoryResponse, error) {
	changed := c.pause == rotav1.PauseState_PAUSE_STATE_UNSPECIFIED && !c.lost
	if c.pause == rotav1.PauseState_PAUSE_STATE_UNSPECIFIED {
		c.pause = rotav1.PauseState_PAUSE_STATE_PAUSED
	}
	return &rotav1.PauseTrajectoryResponse{Changed: changed, Trajectory: &rotav1.Trajectory{Id: req.Id, Pause: c.pause}}, nil
}

func (c *cluster) ResumeTrajectory(context.Context, *rotav1.ResumeTrajectoryRequest) (*rotav1.ResumeTrajectoryResponse, error) {
	changed := c.pause != rotav1.PauseState_PAUSE_STATE_UNSPECIFIED && !c.lost
	if c.reader {
		return nil, connect.NewError(connect.CodePermissionDenied, errors.New("read only"))
	}
	c.pause = rotav1.PauseState_PAUSE_STATE_UNSPECIFIED
	return &rotav1.ResumeTrajectoryResponse{Changed: changed, Trajectory: &rotav1.Trajectory{Id: 7, State: rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN}}, nil
}

func (c *cluster) ExtendTrajectory(_ context.Context, req *rotav1.ExtendTrajectoryRequest) (*rotav1.ExtendTrajectoryResponse, error) {
	c.extended = append(c.extended, req)
	return &rotav1.ExtendTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: req.Id}}, nil
}

// TestPause: what a sandbox is while it is paused, and what is refused.
func TestPause(t *testing.T) {
	_, server, _ := world(t)
	post := func(path string, body io.Reader) int {
		status, _, _ := call(t, "POST", server.URL+"/sandboxes/t7/"+path, body, "Content-Type", "application/json")
		return status
	}
	get := func(path string, headers ...string) (int, string) {
		status, body, _ := call(t, "GET", server.URL+path, nil, headers...)
		return status, body
	}
	// The length of what comes from a reader of no known kind is not known.
	if status := post("pause", io.MultiReader(strings.NewReader(`{"memory":false}`))); status != http.StatusBadRequest {
		t.Errorf("a pause without memory: %d", status)
	}
	if status := post("resume", strings.NewReader(`{"timeout":60}`)); status != http.StatusConflict {
		t.Errorf("resumed while it runs: %d", status)
	}
	if status, _ := get("/health", sandboxHeader, "t7"); status != http.StatusNoContent {
		t.Errorf("health: %d", status)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusConflict} {
		if status := post("pause", nil); status != want {
			t.Errorf("paused: %d, want %d", status, want)
		}
	}
	if status, body := get("/sandboxes/t7"); status != http.StatusOK || !strings.Contains(body, `"state":"paused"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := get("/health", sandboxHeader, "t7"); status != http.StatusBadGateway || !strings.Contains(body, "paused") {
		t.Errorf("health while it is paused: %d %s", status, body)
	}
	if status := post("resume", strings.NewReader(`{"autoPause":true}`)); status != http.StatusBadRequest {
		t.Errorf("resumed to pause by itself: %d", status)
	}
}

// TestAutoResume: a sandbox that is to goes on when it is used, and not when it is asked about.
func TestAutoResume(t *testing.T) {
	c, server, _ := world(t)
	c.files["a"] = "content"
	read := func() (int, string) {
		status, body, _ := call(t, "GET", server.URL+"/files?path=a", nil, sandboxHeader, "t7")
		return status, body
	}
	const paused = rotav1.PauseState_PAUSE_STATE_PAUSED
	for _, tt := range []struct {
		name   string
		labels map[string]string
		reader bool
		after  rotav1.PauseState
	}{
		{"it is not to", nil, false, paused},
		{"it is to", map[string]string{resumeLabel: "true"}, false, rotav1.PauseState_PAUSE_STATE_UNSPECIFIED},
		{"somebody only reads", map[string]string{resumeLabel: "true"}, true, paused},
	} {
		c.pause, c.labels, c.reader = paused, tt.labels, tt.reader
		if status, _, _ := call(t, "GET", server.URL+"/health", nil, sandboxHeader, "t7"); status != http.StatusBadGateway || c.pause != paused {
			t.Errorf("%s: health %d, and then %v", tt.name, status, c.pause)
		}
		if status, body := read(); status != http.StatusOK || body != "content" || c.pause != tt.after {
			t.Errorf("%s: read %d %s, and then %v", tt.name, status, body, c.pause)
		}
		if _, body, _ := call(t, "GET", server.URL+"/sandboxes/t7", nil); strings.Contains(body, resumeLabel) || strings.Contains(body, `"autoResume":true`) != (tt.labels != nil) {
			t.Errorf("%s: %s", tt.name, body)
		}
	}
}

// TestAnAnswerIsLost: the call was made again, and changed nothing then. Its caller is not told of a
// conflict with itself.
func TestAnAnswerIsLost(t *testing.T) {
	c, server, _ := world(t)
	c.lost = true
	for _, tt := range []struct {
		path string
		want []int
	}{
		{"pause", []int{http.StatusNoContent, http.StatusConflict}},
		{"resume", []int{http.StatusCreated, http.StatusConflict}},
		{"pause", []int{http.StatusNoContent}},
		{"connect", []int{http.StatusCreated, http.StatusOK}},
	} {
		for i, want := range tt.want {
			status, body, _ := call(t, "POST", server.URL+"/sandboxes/t7/"+tt.path, strings.NewReader("{}"), "Content-Type", "application/json")
			if status != want {
				t.Errorf("%s, time %d: %d %s, want %d", tt.path, i+1, status, body, want)
			}
		}
	}
}

// TestResume: connecting never shortens the time of a sandbox, and resuming sets it.
func TestResume(t *testing.T) {
	for _, tt := range []struct {
		path, body string
		extended   time.Duration // 0: not
		onlyLater  bool
	}{
		{"connect", `{"timeout":0}`, 0, false},
		{"connect", `{"timeout":60}`, time.Minute, true},
		{"resume", `{"timeout":60}`, time.Minute, false},
		{"resume", `{}`, timeoutDefault, false},
	} {
		c, server, _ := world(t)
		c.pause = rotav1.PauseState_PAUSE_STATE_PAUSED
		status, body, _ := call(t, "POST", server.URL+"/sandboxes/t7/"+tt.path, strings.NewReader(tt.body), "Content-Type", "application/json")
		if status != http.StatusCreated || !strings.Contains(body, `"sandboxID":"t7"`) || isPaused(&rotav1.Trajectory{Pause: c.pause}) {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, status, body)
		}
		switch {
		case tt.extended == 0 && len(c.extended) > 0, tt.extended > 0 && len(c.extended) != 1:
			t.Errorf("%s %s: extended by %v", tt.path, tt.body, c.extended)
		case tt.extended > 0 && (c.extended[0].Timeout.AsDuration() != tt.extended || c.extended[0].OnlyLater != tt.onlyLater):
			t.Errorf("%s %s: extended by %v", tt.path, tt.body, c.extended[0])
		}
	}
}
