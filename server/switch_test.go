package server

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// TestReasonsOfHooksFitTheLog whatever a hook has written: one that is refused would be
// told again and again, and the group stay closed.
func TestReasonsOfHooksFitTheLog(t *testing.T) {
	long := "wake hook of " + strings.Repeat("n", 128) + "/" + strings.Repeat("j", 128) + "/" + strings.Repeat("d", 128)
	for name, err := range map[string]error{
		"short":   errors.New("exit code 1 "),
		"long":    errors.New(strings.Repeat("x", 2000)),
		"cut":     errors.New(strings.Repeat("\u00e9", 2000)),
		"cut off": errors.New("x" + strings.Repeat("\u00e9", 2000)),
		"binary":  errors.New(strings.Repeat("\xff", 2000)),
	} {
		got := hookMessage(long, err)
		if len(got) > hookMessageMax || !utf8.ValidString(got) || !strings.HasPrefix(got, long+": ") || strings.HasSuffix(got, " ") {
			t.Errorf("%s: %q, with %d bytes", name, got, len(got))
		}
	}
}

// TestFailureOfAHook: what it wrote last says most.
func TestFailureOfAHook(t *testing.T) {
	for want, a := range map[string]*state.Action{
		"is CANCELED": {State: state.ActionState(rotav1.ActionState_ACTION_STATE_CANCELED)},
		"is FAILED (EXITED, exit code 3) " + strings.Repeat("y", hookOutputMax-1): {
			State: state.ActionState(rotav1.ActionState_ACTION_STATE_FAILED),
			Result: &state.Result{
				Reason: state.EndReason(rotav1.EndReason_END_REASON_EXITED), ExitCode: 3, Stderr: []byte("begin" + strings.Repeat("y", hookOutputMax-1) + "\n"),
			},
		},
	} {
		if got := failure(a); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
}
