package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
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
