package cli

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// What a trajectory does by itself, and when.
func TestTimeoutTexts(t *testing.T) {
	at := func(s int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(s, 0)) }
	idle := durationpb.New(5 * time.Minute)
	for name, c := range map[string]struct {
		t              *rotav1.Trajectory
		closes, pauses string
	}{
		"nothing":         {&rotav1.Trajectory{}, "", ""},
		"a deadline":      {&rotav1.Trajectory{ExpireTime: at(60)}, "at 1970-01-01T00:01:00.000Z", ""},
		"an idle timeout": {&rotav1.Trajectory{IdleTimeout: idle}, "5m0s after its last action", ""},
		"both":            {&rotav1.Trajectory{ExpireTime: at(60), IdleTimeout: idle}, "at 1970-01-01T00:01:00.000Z, or 5m0s after its last action", ""},
		"a pause":         {&rotav1.Trajectory{ExpireTime: at(60), IdleTimeout: idle, PauseAtTimeout: true}, "5m0s after its last action", "at 1970-01-01T00:01:00.000Z"},
		"it is paused":    {&rotav1.Trajectory{ExpireTime: at(60), PauseTime: at(20), PauseAtTimeout: true}, "", "40s after it is resumed"},
		"it has ended":    {&rotav1.Trajectory{ExpireTime: at(60), State: rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSED}, "", ""},
	} {
		if closes, pauses := timeoutTexts(c.t); closes != c.closes || pauses != c.pauses {
			t.Errorf("%s: closes %q, pauses %q; want %q and %q", name, closes, pauses, c.closes, c.pauses)
		}
	}
}
