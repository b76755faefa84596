package server

import (
	"testing"
	"time"

	"rota/internal/clock"
)

// TestLogTimeIsUnknownAtFirst: a server that has applied nothing yet must not
// take the beginning of its own clock for log time: clients compute from it until
// when a request is remembered.
func TestLogTimeIsUnknownAtFirst(t *testing.T) {
	s := &Server{}
	s.observed.Store(&moment{at: clock.Now()})
	if ns := s.logTime(); ns != 0 {
		t.Errorf("log time %v before anything was applied", time.Unix(0, ns))
	}
	const applied = 1_800_000_000_000_000_000
	s.observed.Store(&moment{applied, clock.Now().Add(-time.Second)})
	if passed := time.Duration(s.logTime() - applied); passed < time.Second || passed > time.Minute {
		t.Errorf("log time is %v past the newest entry of a second ago", passed)
	}
}
