package agent

import (
	"testing"

	"rota/agent/plan"
)

// Readers that never go away take neither all files of the agent nor the room of other attempts.
func TestReadersOfOutputAreBounded(t *testing.T) {
	var r readers
	var leave []func()
	enter := func(action uint64, want bool) {
		t.Helper()
		out, ok := r.enter(plan.Key{Action: action, Attempt: 1})
		if ok != want {
			t.Fatalf("reader %d, of action %d: %v", len(leave), action, ok)
		}
		if ok {
			leave = append(leave, out)
		}
	}
	for action := range uint64(readersMax / attemptReadersMax) {
		for range attemptReadersMax {
			enter(action+1, true)
		}
		enter(action+1, false)
	}
	enter(1000, false)
	leave[0]()
	enter(1000, true)
	for _, out := range leave[1:] {
		out()
	}
	if r.all != 0 || len(r.of) != 0 {
		t.Errorf("left: %d, %v", r.all, r.of)
	}
}
