package past

import (
	"testing"

	"rota/fsm/state"
	"rota/internal/sim/workload"
)

// TestWorkOfSharers: what shared cores had a part of them, and what shared none had them all.
func TestWorkOfSharers(t *testing.T) {
	const second = 1_000_000_000
	a := &action{Action: state.Action{CoresMin: 1, CoresMax: 4, Result: &state.Result{ExecNS: 30 * second}},
		held: []held{{units{cores: 2}, 10 * second}, {units{cores: 1, of: 5}, 10 * second}, {units{cores: 4, of: 2}, 10 * second}}}
	if got, want := work(a, workload.Curve{}), int64((20+2+20)*second); got != want {
		t.Errorf("it takes %d ns with one core, want %d", got, want)
	}
}
