package signals

import (
	"strings"
	"testing"
)

func TestSignalsHaveNamesAndNumbers(t *testing.T) {
	for text, want := range map[string]int{
		"INT": 2, "SIGINT": 2, "sigint": 2, "2": 2, "KILL": 9, "WINCH": 28, "15": 15,
		"": 0, "SIG": 0, "02": 0, "-2": 0, "0": 0, "SEGV": 0, "11": 0, "64": 0, "INT,": 0, strings.Repeat("9", 100): 0,
	} {
		got, err := Parse(text)
		if got != want || (err == nil) != (want > 0) || want > 0 && !Allowed(want) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	if Allowed(0) || Allowed(11) || Allowed(-1) {
		t.Error("signals are allowed that no client may send")
	}
	if _, err := Parse(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 300 {
		t.Error("a message repeats all that was sent")
	}
}
