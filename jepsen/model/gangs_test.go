package model

import (
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// alone is a gang of one with GPUs.
func alone(cores, gpus uint32) *logv1.Command {
	return submitOf(&logv1.Action{Pool: "default", CoresMin: cores, CoresMax: cores, AttemptsMax: 1, GangSize: 1,
		Needs: &logv1.Needs{Gpus: &logv1.Gpus{Degrees: []uint32{gpus}}}})
}

// A node that is reserved for a gang is taken from it when one of its GPUs is out of use. In the same
// entry two younger ones start, as many as may, and the node is reserved for the gang again. The next
// gang, which may not be bypassed any more, was never the oldest without a node.
func TestAReservationIsTakenAndGivenBack(t *testing.T) {
	w := newWorld(t, 0, &logv1.Settings{BypassMax: 2})
	ended := func(node string, actions ...uint64) (c commands) {
		for _, id := range actions {
			c = append(c, reportOf(node, uint64(node[1]-'0'), id, state.EndExited))
		}
		return c
	}
	for _, name := range []string{"n1", "n2"} {
		n := withGPUs(name)
		n.GetRegisterNode().Gpus.Count = 4
		w.must(t, n)
	}
	small := alone(0, 1)
	w.must(t, levelThree, submitOf(cores(4), cores(4)), small, small, small, small, small, small, small, small)
	w.must(t, alone(1, 2), alone(1, 2)) // 11 and 12
	w.must(t, ended("n1", 3, 4, 5, 6)...)
	w.must(t, small, small) // they pass 11
	w.must(t, append(ended("n1", 13, 14), small)...)
	w.must(t, append(ended("n2", 7, 8), small)...) // they pass 12
	w.must(t, &logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: &logv1.ReportGpus{
		Node: "n1", Incarnation: 1, Sick: 1 << 3, Reasons: []string{"XID 79"}}}}, small, small, small)
	for id, want := range map[state.ActionID]state.ActionState{11: state.ActionQueued, 16: state.ActionRunning, 18: state.ActionRunning, 19: state.ActionQueued} {
		if got := w.s.Action(id).State; got != want {
			t.Errorf("action %d is in state %d, must be %d", id, got, want)
		}
	}
	if one, other := w.s.NodeByName("n1").ReservedFor, w.s.NodeByName("n2").ReservedFor; one != 11 || other != 0 {
		t.Errorf("n1 is reserved for %d and n2 for %d, must be for 11 and nobody", one, other)
	}
}
