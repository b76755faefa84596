package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDouble(t *testing.T) {
	b := Backoff{Least: 10 * time.Millisecond, Most: 70 * time.Millisecond}
	for _, most := range []time.Duration{10, 20, 40, 70, 70} {
		most *= time.Millisecond
		if got := b.Next(); got < most/2 || got > most {
			t.Errorf("%v, want between half and all of %v", got, most)
		}
	}
	if b.Reset(); b.Next() > b.Least {
		t.Error("a reset changes nothing")
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken off")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		if err := Sleep(ctx, time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.AfterFunc(time.Minute, func() { cancel(broken) })
		if err := Sleep(ctx, time.Hour); !errors.Is(err, broken) || time.Since(start) != time.Hour+time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		for _, d := range []time.Duration{0, -1, 1} {
			if err := Sleep(ctx, d); !errors.Is(err, broken) {
				t.Errorf("%v: %v", d, err)
			}
		}
	})
}
