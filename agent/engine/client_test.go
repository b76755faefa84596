package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine/chunks"
)

// TestSGLangWithoutABackupOfItsWeights is stopped, since it would answer nonsense after its sleep.
// One that an earlier agent has put to sleep is not woken.
func TestSGLangWithoutABackupOfItsWeights(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a, b := n.spec("a", sglang, ""), n.spec("b", sglang, "")
	a.Command.Argv = slices.DeleteFunc(a.Command.Argv, func(arg string) bool { return arg == weightsBackup })
	n.desire(a)
	n.until("a", chunks.StateReady)
	c := &client{spec: a}
	if err := c.sleep(t.Context()); !errors.Is(err, errNoSleep) {
		t.Errorf("a call to sleep: %v", err)
	}
	if err := c.wake(t.Context()); !errors.Is(err, errNoSleep) {
		t.Errorf("a call to wake: %v", err)
	}
	n.desire(b)
	n.until("b", chunks.StateReady)
	n.desire(a)
	if s := n.until("a", chunks.StateReady); s.Counts.Starts != 2 || s.Counts.Sleeps != 0 || s.Counts.Failures != 0 || !n.completes("a") {
		t.Errorf("%+v", s)
	}
}

// TestAnswersThatDoNotEnd are failures, except those to a probe.
func TestAnswersThatDoNotEnd(t *testing.T) {
	t.Parallel()
	flood := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("null ", bodyMax)))
	}))
	defer flood.Close()
	c := &client{spec: &rotav1.EngineSpec{Driver: custom, Sleep: &rotav1.EngineCall{Path: "/sleep"}}, base: flood.URL, http: flood.Client()}
	if err := c.sleep(t.Context()); !errors.Is(err, errTooLong) {
		t.Errorf("a call to sleep: %v", err)
	}
	if err := c.probe(t.Context()); err != nil {
		t.Errorf("a probe: %v", err)
	}
}
