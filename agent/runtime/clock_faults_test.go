//go:build faults

package runtime_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/clock"
	"rota/internal/clock/clockctl"
)

// noticed is how late a supervisor may notice that its clock was changed: the
// alarm looks every 50 ms, and the machine may be busy.
const noticed = 10 * time.Second

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
		{"is fast", clockctl.RateMax, 0, 20 * time.Second, 2 * time.Second},
		{"is slow", clockctl.RateMin, 0, 100 * time.Millisecond, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			for late := true; late; {
				late = killedByClock(t, c.ratePPM, c.jump, c.lease, c.after)
			}
		})
	}
}

// killedByClock changes the clock during a lease. It was late, and shows nothing,
// if most of the lease was over by then.
func killedByClock(t *testing.T, ratePPM int64, jump, lease, after time.Duration) (late bool) {
	client, control, shown := fault(t)
	start(t, client, shell(key(1), "sleep 1000"))
	leased := time.Now()
	if err := client.SetDeadline(t.Context(), shown.Now()+int64(lease)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := control.Set(ratePPM, jump); err != nil {
		t.Fatal(err)
	}
	if time.Since(leased) > lease/2 {
		return true
	}
	e := nextExit(t, client)
	if took := time.Since(begin); took < after/2 || took > after+noticed {
		t.Errorf("killed after %v, want %v and not much more", took, after)
	}
	if e.Reason != plan.ReasonNodeLost {
		t.Errorf("got %+v", e)
	}
	return false
}

// TestAClockThatIsSetRightAgain: the alarm was armed by the speed that the clock
// had then.
func TestAClockThatIsSetRightAgain(t *testing.T) {
	// A machine that is too busy to set it right before the alarm needs longer.
	for in, late := 400*time.Millisecond, true; late; in *= 2 {
		client, control, shown := fault(t)
		if err := control.Set(clockctl.RateMax, 0); err != nil {
			t.Fatal(err)
		}
		start(t, client, shell(key(1), fmt.Sprintf("sleep %f; exit 3", 2*in.Seconds())))
		deadline := shown.Now() + int64(10*in)
		if err := client.SetDeadline(t.Context(), deadline); err != nil {
			t.Fatal(err)
		}
		if err := control.Set(0, 0); err != nil {
			t.Fatal(err)
		}
		// The rest of the lease must be longer than the command.
		late = shown.Now() > deadline-int64(4*in) && in < 10*time.Second
		if e := nextExit(t, client); !late && (e.Reason != plan.ReasonExited || e.ExitCode != 3) {
			t.Errorf("got %+v, though its lease had seconds left", e)
		}
	}
}
