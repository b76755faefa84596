package runtime_test

import (
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// TestThrottleFile: what an attempt that uses quotas says of refused calls is part of its end.
func TestThrottleFile(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) { saysThrottled(t, dial(t, options(t.TempDir(), mode))) })
}

// Also as another user that has a /tmp of its own.
func TestThrottleFileOfAnIsolatedAttempt(t *testing.T) {
	saysThrottled(t, dial(t, isolated(t, "")))
}

func saysThrottled(t *testing.T, c *runtime.Client) {
	for i, x := range []struct {
		script    string
		throttled bool
		after     time.Duration
	}{
		{"true", false, 0},
		{": >$ROTA_THROTTLE_FILE", false, 0},
		{"echo 30 >$ROTA_THROTTLE_FILE", true, 30 * time.Second},
		{"echo 0.5 >$ROTA_THROTTLE_FILE; exit 3", true, 500 * time.Millisecond},
		{"echo busy >$ROTA_THROTTLE_FILE", true, 0},
		{"echo -5 >$ROTA_THROTTLE_FILE", true, 0},
		{"echo nan >$ROTA_THROTTLE_FILE", true, 0},
		{"echo inf >$ROTA_THROTTLE_FILE", true, 24 * time.Hour},
		{"echo 5 >$ROTA_THROTTLE_FILE; kill -9 $$", true, 5 * time.Second},
		{"rm -f $ROTA_THROTTLE_FILE; ln -s /etc/passwd $ROTA_THROTTLE_FILE; true", false, 0},
		{"rm -f $ROTA_THROTTLE_FILE; mkfifo $ROTA_THROTTLE_FILE; true", false, 0},
	} {
		spec := shell(key(uint64(i+1)), x.script)
		spec.Throttles = true
		if e := runOne(t, c, spec); e.Throttled != x.throttled || e.RetryAfter != x.after {
			t.Errorf("%s: throttled %v, after %v, want %v and %v (%s)", x.script, e.Throttled, e.RetryAfter, x.throttled, x.after, e.Stderr)
		}
	}
	if e := runOne(t, c, shell(key(100), `test -z "$ROTA_THROTTLE_FILE"`)); e.Reason != plan.ReasonExited || e.ExitCode != 0 {
		t.Errorf("an attempt without quotas has such a file: %+v", e)
	}
}
