package inventory

import (
	"errors"
	"testing"
	"time"
)

// A driver that hangs holds up nobody for long, and takes a bounded number of threads.
func TestADriverThatHangs(t *testing.T) {
	release := make(chan struct{})
	hang := func() (int, error) {
		<-release
		return 0, nil
	}
	for i := range 2 * askingMax {
		if _, err := ask(time.Millisecond, hang); !errors.Is(err, errHangs) {
			t.Fatalf("question %d: %v", i, err)
		}
	}
	if n := len(asking); n != askingMax {
		t.Errorf("%d questions wait, want %d", n, askingMax)
	}
	close(release)
	for len(asking) > 0 {
		time.Sleep(time.Millisecond)
	}
	if n, err := ask(time.Minute, func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("a driver that answers again: %d, %v", n, err)
	}
}
