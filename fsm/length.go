package fsm

import (
	"rota/fsm/state"
	"rota/sched/predict"
)

// learnLength takes a trajectory that has ended into what is known of its policy and task class.
// It was cut off if others ended it.
func (x *execution) learnLength(policy, class string, t *state.LengthTrace, cut bool) {
	c := x.s.LengthClass(policy, class)
	fresh := c == nil
	if fresh {
		c = &state.LengthClass{Policy: policy, Name: class}
	}
	learned := predict.Learn(c, t, cut, x.now())
	if learned == c {
		return
	}
	if fresh && x.s.LengthClassCount() == state.LengthClassesMax {
		stalest := x.s.StalestLengthClass()
		x.s.DeleteLengthClass(stalest.Policy, stalest.Name)
	}
	x.s.PutLengthClass(learned)
}
