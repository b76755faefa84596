package agent

import (
	goruntime "runtime"
	"slices"
	"testing"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/plan"
)

// assignOn grants an action with CPUs, or changes those of one that was granted.
func (c *cluster) assignOn(action uint64, cpus ...uint32) plan.Key {
	key := plan.Key{Action: action, Attempt: 1}
	c.change(func() {
		key.Incarnation = c.incarnation
		a := assignment(action)
		a.Cpus = cpus
		c.desired[key] = a
	})
	return key
}

// untilRunsOn waits until an attempt runs on just these CPUs.
func (s *supervisor) untilRunsOn(key plan.Key, cpus ...int) {
	s.t.Helper()
	s.until("other CPUs", func(s *supervisor) bool {
		spec, runs := s.running[key]
		return runs && slices.Equal(spec.CPUs, cpus)
	})
}

// TestAnAttemptFollowsItsCPUs: one shrinks for another to start, and grows again when that
// one is gone, also under an agent that did not start it.
func TestAnAttemptFollowsItsCPUs(t *testing.T) {
	if goruntime.NumCPU() < 2 {
		t.Skip("this machine has one CPU")
	}
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	cfg.Cores, cfg.Oversubscribe = 0, false // all, for real
	stop := start(t, cfg)
	var cpus []uint32
	c.until("registration", func(c *cluster) bool {
		if len(c.registered) > 0 {
			cpus = numbersOf(c.registered[0])
		}
		return len(cpus) > 0
	})
	a, b := cpus[0], cpus[1]
	first := c.assignOn(1, a, b)
	s.untilRunsOn(first, int(a), int(b))
	c.assignOn(1, a)
	second := c.assignOn(2, b)
	s.untilRunsOn(first, int(a))
	s.untilRunsOn(second, int(b))

	stop()
	start(t, cfg)
	s.finish(second)
	c.result(second)
	c.assignOn(1, a, b)
	s.untilRunsOn(first, int(a), int(b))
}

// numbersOf are the CPUs that a node has registered, ascending.
func numbersOf(r *rotav1.RegisterNodeRequest) (cpus []uint32) {
	for _, n := range r.GetNumaNodes() {
		cpus = append(cpus, n.GetCpus()...)
	}
	slices.Sort(cpus)
	return cpus
}
