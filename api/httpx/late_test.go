package httpx_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rota/api/httpx"
)

// TestLateHasEndedWhenItIsStopped: what is stopped while it runs is waited for.
func TestLateHasEndedWhenItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		stop := httpx.Late(time.Second, func() {
			time.Sleep(time.Second)
			ended = true
		})
		time.Sleep(1500 * time.Millisecond)
		if !stop() || !ended {
			t.Error("it was not waited for")
		}

		stop = httpx.Late(time.Second, func() { t.Error("it was stopped") })
		time.Sleep(time.Second / 2)
		if stop() {
			t.Error("it was late")
		}
		time.Sleep(time.Minute)
	})
}
