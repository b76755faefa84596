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
	// What was applied before the cluster had a time is as little to go by.
	for _, early := range []int64{0, int64(300 * time.Millisecond)} {
		s.observed.Store(&moment{early, clock.Now()})
		if ns := s.logTime(); ns != 0 {
			t.Errorf("log time %v while %d ns were applied", time.Unix(0, ns), early)
		}
	}
	const applied = 1_800_000_000_000_000_000
	s.observed.Store(&moment{applied, clock.Now().Add(-time.Second)})
	if passed := time.Duration(s.logTime() - applied); passed < time.Second || passed > time.Minute {
		t.Errorf("log time is %v past the newest entry of a second ago", passed)
	}
}
