package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// TestWhatIsWaitedForIsToldWhenItChanges, and not because a time has passed.
func TestWhatIsWaitedForIsToldWhenItChanges(t *testing.T) {
	said := []string{
		"", "action 7 waits for 4 cores; 2 older actions are ahead", "action 7 waits for 4 cores; 2 older actions are ahead",
		"action 7 waits for 4 cores; 1 older action is ahead", "action 7 waits for 1 unit; the next comes back in 2.3 s",
		"action 7 waits for 1 unit; the next comes back in 1.3 s", "",
	}
	var errOut bytes.Buffer
	asked, all := 0, make(chan struct{})
	stop := (&app{err: &errOut}).tellChanges(t.Context(), time.Millisecond, time.Millisecond, func(context.Context) string {
		if asked++; asked == len(said) {
			close(all)
		}
		return said[min(asked, len(said))-1]
	})
	<-all
	stop()
	want := "rota: " + strings.Join([]string{said[1], said[3], said[4]}, "\nrota: ") + "\n"
	if got := errOut.String(); got != want {
		t.Errorf("said:\n%swant:\n%s", got, want)
	}
}

func TestEstimateText(t *testing.T) {
	for want, e := range map[string]*rotav1.StartEstimate{
		"":                                       nil,
		"at once":                                {P50: durationpb.New(0), P90: durationpb.New(0)},
		"in about 3.2 s":                         {P50: durationpb.New(3200 * time.Millisecond), P90: durationpb.New(3200 * time.Millisecond)},
		"in about 15 s (probably within 8 min)":  {P50: durationpb.New(15 * time.Second), P90: durationpb.New(8 * time.Minute)},
		"at once (probably within 20 ms)":        {P50: durationpb.New(0), P90: durationpb.New(20 * time.Millisecond)},
		"in about 1 ms (probably within 30 h)":   {P50: durationpb.New(1000), P90: durationpb.New(30 * time.Hour)},
		"unknown: nothing is known of the other": {UnknownReason: "nothing is known of the other"},
	} {
		if got := startText(e); got != want {
			t.Errorf("%v is %q, want %q", e, got, want)
		}
	}
	// Time that passes is no news.
	a, b := withoutTimes("would start in about 3.2 s (probably within 8 min)"), withoutTimes("would start in about 20 ms (probably within 9 h)")
	if a != b {
		t.Errorf("%q is not %q", a, b)
	}
}

// TestNothingIsToldOfAShortWait, nor to a file.
func TestNothingIsToldOfAShortWait(t *testing.T) {
	var errOut bytes.Buffer
	a := &app{err: &errOut}
	never := func(context.Context) string { return "action 7 waits" }
	a.tellChanges(t.Context(), time.Hour, time.Hour, never)()
	a.tellWaiting(t.Context(), never)()
	if errOut.Len() > 0 {
		t.Errorf("said %q", &errOut)
	}
}
