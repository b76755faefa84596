package evaluate

import (
	"fmt"
	"slices"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// mapping says in the words of the log what a workload has: nodes, quotas, and
// the cost of each action. All that the evaluation knows of the state machine's
// commands beside their order is here.
type mapping struct {
	params *workload.Params
	// fixed is what elastic actions ask for; 0: all they can use.
	fixed int64
	// shareAfter is the age in nanoseconds from which actions may share cores; 0: they do not.
	shareAfter int64
	told
}

// told is what clients tell rota or not, beside profiles.
type told struct {
	classless bool // no action names its class
	sized     bool // actions say how large they are
	step      bool // trajectories say that they are of a step
}

// gpuClass is the class of all GPUs.
const gpuClass = "simulated-gpu"

// cluster returns the commands that set up nodes and quotas.
func (m *mapping) cluster() (out []*logv1.Command) {
	c := &m.params.Cluster
	for i, node := range c.Nodes() {
		n := &logv1.RegisterNode{Name: fmt.Sprintf("node-%d", i+1), JournalId: "simulated", MemoryBytes: uint64(node.Memory), Resizes: node.Resizes, ShareAfterNs: m.shareAfter}
		next := uint32(0)
		for _, cores := range node.NUMA {
			numa := &logv1.NumaNode{}
			for range cores {
				numa.Cpus = append(numa.Cpus, next)
				next++
			}
			n.NumaNodes = append(n.NumaNodes, numa)
		}
		out = append(out, &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: n}})
	}
	for i := range int(c.GPUNodes.Value) {
		out = append(out, &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: fmt.Sprintf("gpu-node-%d", i+1), JournalId: "simulated", MemoryBytes: uint64(c.HostMemory.Value),
			Gpus: &logv1.GpuInventory{Class: gpuClass, Count: uint32(c.GPUsPerNode.Value), MemoryBytes: uint64(c.GPUMemory.Value)},
		}}})
	}
	for i := range m.params.Providers {
		out = append(out, &logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: quota(&m.params.Providers[i])}})
	}
	return out
}

// quota is the limit of a provider. Windows are taken to slide, which keeps a
// fixed one too.
func quota(p *workload.Provider) *logv1.CreateQuota {
	q := &logv1.CreateQuota{Name: p.Name, Kind: uint32(state.QuotaConcurrency), Limit: uint32(p.Limit.Value), Keys: uint32(p.Keys.Value)}
	if p.Window.Value > 0 {
		q.Kind, q.WindowNs = uint32(state.QuotaSlidingWindow), int64(p.Window.Value)
	}
	return q
}

// pinned says whether a trajectory has actions that run where it lives.
func (m *mapping) pinned(t *workload.Trajectory) bool {
	return !t.Alone && slices.ContainsFunc(t.Turns, func(turn workload.Turn) bool { return onCPUs(&turn.Action) })
}

// action returns an action's cost and what is known of it in advance. What it
// really takes is not in it.
func (m *mapping) action(a *workload.Action) *logv1.Action {
	needs := &logv1.Needs{Profile: profile(a)}
	out := &logv1.Action{AttemptsMax: 1, Class: a.Class, Fixed: a.Fixed}
	if m.classless {
		out.Class = ""
	}
	if m.sized {
		out.SizeHint = uint64(a.Size)
	}
	for i, c := range a.Cost {
		if i == 0 && a.Elastic() && m.fixed > 0 {
			units := a.Widest(m.fixed)
			c = workload.Cost{Resource: c.Resource, Min: units, Max: units}
		}
		switch name, isQuota := strings.CutPrefix(c.Resource, quotaOf); {
		case isQuota:
			needs.Quotas = append(needs.Quotas, &logv1.QuotaUse{Quota: name, Units: uint32(c.Min)})
		case c.Resource == "gpu":
			needs.Gpus = m.gpus(a, &c)
		default:
			out.CoresMin, out.CoresMax, needs.Cores = uint32(c.Min), uint32(c.Max), numbers(c.Set)
		}
	}
	if needs.Profile != nil || needs.Gpus != nil || needs.Quotas != nil || needs.Cores != nil {
		out.Needs = needs
	}
	return out
}

// gpus asks for a chunk with the action's model. Set-up is declared as what it
// takes on the middle one of the allowed chunks; a grant has what it takes there.
func (m *mapping) gpus(a *workload.Action, c *workload.Cost) *logv1.Gpus {
	g := &logv1.Gpus{Class: gpuClass, Degrees: numbers(c.Set), Model: a.Service}
	for k := c.Min; c.Set == nil && k <= c.Max; k *= 2 {
		g.Degrees = append(g.Degrees, uint32(k))
	}
	if a.Service != "" {
		g.SetupNs = m.params.Service(a.Service).Restore(int64(g.Degrees[len(g.Degrees)/2]))
	}
	return g
}

// profile is what was profiled of an action's duration, nil if nothing was.
func profile(a *workload.Action) *logv1.Profile {
	if a.Profiled == 0 {
		return nil
	}
	p := &logv1.Profile{SingleNs: a.Profiled, Serial: a.Curve.Ratio == nil, SerialPpm: a.Curve.SerialPPM}
	for _, r := range a.Curve.Ratio {
		p.Points = append(p.Points, &logv1.Point{Units: uint32(r.Units), RatioPpm: r.PPM})
	}
	return p
}

func numbers(set []int64) (out []uint32) {
	for _, n := range set {
		out = append(out, uint32(n))
	}
	return out
}

// grant is what an attempt was given: units of its key resource, and the set-up
// that it has to do first.
type grant struct {
	units sim.Width
	setUp int64
}

func (m *mapping) grant(a *workload.Action, t *state.Attempt) grant {
	if t.Chunk.Units == 0 {
		return grant{units: sim.Width{Units: int64(t.Cores.Len())}}
	}
	g := grant{units: sim.Width{Units: int64(t.Chunk.Units)}}
	if t.SetUpNS > 0 {
		g.setUp = m.params.Service(a.Service).Restore(g.units.Units)
	}
	return g
}
