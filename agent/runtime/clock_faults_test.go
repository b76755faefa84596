//go:build faults

package runtime_test

import (
	"path/filepath"
	"testing"
	"time"

	"rota/agent/runtime"
	"rota/internal/clock"
	"rota/internal/clock/clockctl"
)

// noticed is how late a supervisor may notice that its clock was changed: the
// alarm looks every 50 ms, and the machine may be busy.
const noticed = 2 * time.Second

// fault has the supervisor, and not this process, follow a clock.
func fault(t *testing.T) (*runtime.Client, *clockctl.Control, *clockctl.Follower) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clock")
	c, err := clockctl.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	shown, err := clockctl.Follow(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(clock.Env, path)
	return dial(t, options(t.TempDir(), "")), c, shown
}

func TestTheDeadlineIsByAClockThat(t *testing.T) {
	for _, c := range []struct {
		name        string
		ratePPM     int64
		jump, lease time.Duration
		// after is when the attempt must be dead, in true time.
		after time.Duration
	}{
		{"jumps", 0, time.Hour, time.Hour, 0},
		{"is fast", clockctl.RateMax, 0, 10 * time.Second, time.Second},
		{"is slow", clockctl.RateMin, 0, 100 * time.Millisecond, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, control, shown := fault(t)
			start(t, client, shell(key(1), "sleep 1000"))
			if err := client.SetDeadline(t.Context(), shown.Now()+int64(c.lease)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if err := control.Set(c.ratePPM, c.jump); err != nil {
				t.Fatal(err)
			}
			e := nextExit(t, client)
			if took := time.Since(begin); took < c.after/2 || took > c.after+noticed {
				t.Errorf("killed after %v, want %v and not much more", took, c.after)
			}
			if e.Reason != runtime.ReasonNodeLost {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// TestAClockThatIsSetRightAgain: the alarm was armed by the speed that the clock
// had then.
func TestAClockThatIsSetRightAgain(t *testing.T) {
	client, control, shown := fault(t)
	if err := control.Set(clockctl.RateMax, 0); err != nil {
		t.Fatal(err)
	}
	start(t, client, shell(key(1), "sleep 0.8; exit 3"))
	if err := client.SetDeadline(t.Context(), shown.Now()+int64(4*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := control.Set(0, 0); err != nil {
		t.Fatal(err)
	}
	if e := nextExit(t, client); e.Reason != runtime.ReasonExited || e.ExitCode != 3 {
		t.Errorf("got %+v, though its lease had seconds left", e)
	}
}
