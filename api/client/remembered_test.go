package client

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestASubmissionIsNotRepeatedWhenItMayBeForgotten: as long as log time is unknown,
// servers remember request IDs for a time of their own. A client that repeats for longer
// gives up before, and says that the outcome is unknown.
func TestASubmissionIsNotRepeatedWhenItMayBeForgotten(t *testing.T) {
	const forgets, heals = 200 * time.Millisecond, 300 * time.Millisecond
	for name, spoil := range map[string]func(s *server, broken func() bool){
		"answers are lost": func(s *server, broken func() bool) {
			s.after = func(int32) error {
				if broken() {
					panic(http.ErrAbortHandler)
				}
				return nil
			}
		},
		"the outcome is unknown to the server": func(s *server, broken func() bool) {
			s.one = func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
				if result := s.submit(r); !broken() {
					return result
				}
				return refuse(connect.CodeUnavailable, "UNKNOWN_OUTCOME", 10*time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			s := cl.server(t)
			s.timeless = true
			began := time.Now()
			s.before = func(int32) error {
				if time.Since(began) >= forgets {
					cl.mu.Lock()
					defer cl.mu.Unlock()
					s.timeless = false
					clear(cl.requests)
				}
				return nil
			}
			spoil(s, func() bool { return time.Since(began) < heals })
			c := connectTo(t, s)
			c.clock.remembered = forgets / 4
			if _, err := c.Submit(t.Context(), spec(1)); !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("got %v, want ErrUnknownOutcome", err)
			}
			time.Sleep(time.Until(began.Add(heals + 50*time.Millisecond)))
			if n := cl.executions(); n != 1 {
				t.Errorf("the submission was executed %d times", n)
			}
		})
	}
}

// TestRetryForMayBeAsLongAsOneLikes: no server accepts a request ID for more than an
// hour, and no submission needs one.
func TestRetryForMayBeAsLongAsOneLikes(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	c := connectTo(t, s)
	c.config.RetryFor = 24 * time.Hour
	if _, err := c.Submit(t.Context(), spec(1)); err != nil {
		t.Error(err)
	}
	cl.mu.Lock()
	cl.logTime = cl.logTime.Add(2 * time.Hour)
	cl.mu.Unlock()
	if _, err := c.Submit(t.Context(), spec(2)); err != nil {
		t.Errorf("after the ID had expired on its way: %v", err)
	}
}
