package past

import (
	"testing"

	"rota/fsm/state"
	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// TestWorkOfSharers: what shared cores had a part of them, and what shared none had them all.
func TestWorkOfSharers(t *testing.T) {
	const second = 1_000_000_000
	a := &action{Action: state.Action{CoresMin: 1, CoresMax: 4, Result: &state.Result{ExecNS: 30 * second}},
		held: []held{{sim.Width{Units: 2}, 10 * second}, {sim.Width{Units: 1, Of: 5}, 10 * second}, {sim.Width{Units: 4, Of: 2}, 10 * second}}}
	if got, want := work(a, workload.Curve{}), int64((20+2+20)*second); got != want {
		t.Errorf("it takes %d ns with one core, want %d", got, want)
	}
}
