package evaluate

import (
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/sim/workload"
	"rota/fsm/state"
)

// mapping says in the words of the log what a workload has: nodes, quotas, and
// the cost of each action. All that the evaluation knows of the state machine's
// commands beside their order is here.
type mapping struct {
	params *workload.Params
	// fixed is what elastic actions ask for; 0: all they can use.
	fixed int64
}

// What the state machine accepts. Until it does, profiles are left out, and a
// workload that needs the others cannot run.
const (
	withProfiles = false
	withQuotas   = false
	withGPUs     = false
)

// check says what the workload has that cannot be expressed.
func (m *mapping) check() error {
	for i := range m.params.Tasks {
		t := &m.params.Tasks[i]
		for _, spec := range slices.Concat(t.Tools, t.Rewards) {
			switch {
			case spec.Resource == "gpu" && !withGPUs:
				return fmt.Errorf("class %s needs GPUs, which the state machine does not schedule yet", spec.Class)
			case spec.Resource != "cpu" && spec.Resource != "gpu" && !withQuotas:
				return fmt.Errorf("class %s needs %s, and the state machine has no quotas yet", spec.Class, spec.Resource)
			}
		}
	}
	return nil
}

// cluster returns the commands that set up nodes.
func (m *mapping) cluster() (out []*logv1.Command) {
	c := &m.params.Cluster
	for i := range int(c.CPUNodes.Value) {
		n := &logv1.RegisterNode{Name: fmt.Sprintf("node-%d", i+1), JournalId: "simulated", MemoryBytes: uint64(c.NodeMemory.Value)}
		each := c.CoresPerNode.Value / c.NUMAPerNode.Value
		for first := range c.NUMAPerNode.Value {
			numa := &logv1.NumaNode{}
			for cpu := range each {
				numa.Cpus = append(numa.Cpus, uint32(first*each+cpu))
			}
			n.NumaNodes = append(n.NumaNodes, numa)
		}
		out = append(out, &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: n}})
	}
	return out
}

// pinned says whether a trajectory has actions that run where it lives.
func (m *mapping) pinned(t *workload.Trajectory) bool {
	return slices.ContainsFunc(t.Turns, func(turn workload.Turn) bool { return onCPUs(&turn.Action) })
}

// action returns an action's cost. What it really takes is not in it.
func (m *mapping) action(a *workload.Action) *logv1.Action {
	out := &logv1.Action{AttemptsMax: 1}
	key := a.Cost[0]
	if a.Elastic() && m.fixed > 0 {
		units := a.Widest(m.fixed)
		key = workload.Cost{Resource: key.Resource, Min: units, Max: units}
	}
	out.CoresMin, out.CoresMax = uint32(key.Min), uint32(key.Max)
	if key.Set != nil {
		out.Needs = &logv1.Needs{Cores: numbers(key.Set)}
	}
	if withProfiles {
		m.profile(out, a)
	}
	return out
}

// profile says what is known in advance: the class, and for those that were
// profiled their duration and curve.
func (m *mapping) profile(out *logv1.Action, a *workload.Action) {
	out.Class = a.Class
	if a.Profiled == 0 {
		return
	}
	if out.Needs == nil {
		out.Needs = &logv1.Needs{}
	}
	p := &logv1.Profile{SingleNs: a.Profiled, Serial: a.Curve.Ratio == nil, SerialPpm: a.Curve.SerialPPM}
	for _, r := range a.Curve.Ratio {
		p.Points = append(p.Points, &logv1.Point{Units: uint32(r.Units), RatioPpm: r.PPM})
	}
	out.Needs.Profile = p
}

func numbers(set []int64) []uint32 {
	out := make([]uint32, len(set))
	for i, n := range set {
		out[i] = uint32(n)
	}
	return out
}

// grant is what an attempt was given: units of its key resource, and the set-up
// that it has to do first.
type grant struct{ units, setUp int64 }

func (m *mapping) grant(_ *workload.Action, t *state.Attempt) grant {
	return grant{units: int64(t.Cores.Len())}
}
