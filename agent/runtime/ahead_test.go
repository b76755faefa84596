package runtime

import (
	"errors"
	"sync/atomic"
	"testing"
)

// A failure is not told of once what failed works again.
func TestAFailureIsNotKeptAhead(t *testing.T) {
	var works atomic.Bool
	var made atomic.Int32
	broken, given := errors.New("no room"), make(chan int32, 1)
	a := newAhead[int32](2)
	go a.fill(func() (int32, error) {
		if !works.Load() {
			return 0, broken
		}
		return made.Add(1), nil
	}, func(n int32) { given <- n })
	for range 5 {
		if _, err := a.take(nil); !errors.Is(err, broken) {
			t.Fatalf("while nothing can be made: %v", err)
		}
	}
	works.Store(true)
	for failures := 0; ; failures++ {
		if _, err := a.take(nil); err == nil {
			break
		}
		if failures > 1 { // one may have been on its way
			t.Fatal("failures were kept")
		}
	}
	for range 5 {
		if _, err := a.take(nil); err != nil {
			t.Errorf("while it works: %v", err)
		}
	}
	close(a.quit)
	if n := <-given; n != made.Load() {
		t.Errorf("number %d of %d was one too many", n, made.Load())
	}
}
