package ui

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"time"
)

// stuck is an answer whose reader takes nothing: a write ends at its deadline.
type stuck struct {
	http.ResponseWriter
	deadline time.Time
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.deadline = at
	return nil
}

func (s *stuck) Write([]byte) (int, error) {
	if s.deadline.IsZero() {
		return 0, errors.New("this would never end")
	}
	return 0, os.ErrDeadlineExceeded
}

// TestAReaderThatTakesNothingIsGivenUp: it must not keep a place of the open pages.
func TestAReaderThatTakesNothingIsGivenUp(t *testing.T) {
	w := &stuck{}
	if err := sendEvent(w, []byte("<p>"), false); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if left := time.Until(w.deadline); left > liveWriteMax {
		t.Errorf("it has %v", left)
	}
}
