package client

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What an attempt has written may take far longer to come than it took to end.
func TestOutputMayTakeLongAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		news := make(chan struct{}, 1)
		var outputs sync.WaitGroup
		ended := false
		outputs.Go(func() {
			for range 10 {
				time.Sleep(outputGrace - time.Second)
				news <- struct{}{}
			}
			ended = true
		})
		if waitWhileNews(&outputs, news, outputGrace); !ended {
			t.Error("output was given up while it came")
		}

		silent := make(chan struct{})
		outputs.Go(func() { <-silent })
		began := time.Now()
		if waitWhileNews(&outputs, news, outputGrace); time.Since(began) != outputGrace {
			t.Errorf("silence ends after %v", time.Since(began))
		}
		close(silent)
	})
}
