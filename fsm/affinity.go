package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// setAffinity says which hardware the trajectories of a task class go to, or forgets it. Those
// that have a worker stay there.
func (x *execution) setAffinity(c *logv1.SetAffinity) *logv1.Result {
	if c.Remove {
		if x.s.Affinity(c.Policy, c.TaskClass) == nil {
			return refuse(codeNotFound, "AFFINITY_NOT_FOUND", "nothing was said of the hardware of task class %q of policy %q; see: rota policy affinity list", c.TaskClass, c.Policy)
		}
		x.s.DeleteAffinity(c.Policy, c.TaskClass)
		return &logv1.Result{Count: 1}
	}
	r := &state.Affinity{Policy: c.Policy, TaskClass: c.TaskClass, Hardware: c.Hardware, CostPercent: c.CostPercent, SpillPercent: c.SpillPercent}
	if err := r.Validate(); err != nil {
		return refuse(codeInvalidArgument, "INVALID", "%v", err)
	}
	if x.s.Affinity(c.Policy, c.TaskClass) == nil && x.s.AffinityCount() >= state.AffinitiesMax {
		return refuse(codeResourceExhausted, "TOO_MANY_AFFINITIES", "there are %d affinities already, which is the limit: remove some with: rota policy affinity remove", state.AffinitiesMax)
	}
	if _, refusal := x.policy(c.Policy); refusal != nil {
		return refusal
	}
	x.s.PutAffinity(r)
	return &logv1.Result{Count: 1}
}

// forgetAffinities forgets what was said of a policy.
func (x *execution) forgetAffinities(policy string) {
	var classes []string
	x.s.Affinities(func(r *state.Affinity) bool {
		if r.Policy == policy {
			classes = append(classes, r.TaskClass)
		}
		return true
	})
	for _, class := range classes {
		x.s.DeleteAffinity(policy, class)
	}
}
