package past

import (
	"fmt"
	"math"

	"rota/fsm/state"
	"rota/internal/sim"
	"rota/internal/sim/evaluate"
	"rota/internal/sim/workload"
	"rota/sched"
	"rota/sched/scale"
)

const (
	million = 1_000_000
	// execNSMax and spanNSMax keep sums of times in 63 bits, whatever a log says.
	execNSMax = 30 * 24 * 3600 * 1_000_000_000
	spanNSMax = 10 * 365 * 24 * 3600 * 1_000_000_000
)

// leftOut says why an action cannot be replayed; empty if it can.
func (b *builder) leftOut(a *action) string {
	switch {
	case a.Pool != b.pool.ID:
		return "of other pools"
	case a.GPUs() != nil:
		return "on GPUs"
	case a.State != state.ActionSucceeded && a.State != state.ActionFailed, a.Result.Reason == state.EndStartFailed, a.Result.ExecNS <= 0:
		return "canceled, expired, lost or not started"
	case a.Result.ExecNS > execNSMax:
		return "of more than 30 days"
	}
	return ""
}

// overhead is what it took to start the newest attempt and to report its end.
func (a *action) overhead() int64 { return max(0, a.EndedAt-a.StartedAt-a.Result.ExecNS) }

// action returns what the simulation is to know of an action: above all, how much work
// it was.
func (b *builder) action(a *action) workload.Action {
	least, most := int64(a.CoresMin), int64(a.CoresMax)
	out := workload.Action{
		Class: b.class(a), Cost: []workload.Cost{{Resource: "cpu", Min: least, Max: most}},
		Single: a.Result.ExecNS, Curve: workload.Curve{SerialPPM: million}, Fixed: a.Fixed, Dispatch: a.overhead(),
	}
	if a.Needs != nil {
		for _, n := range a.Needs.Cores {
			out.Cost[0].Set = append(out.Cost[0].Set, int64(n))
		}
		for _, q := range a.Needs.Quotas {
			if quota := b.past.last.Quota(q.Quota); quota != nil {
				out.Cost = append(out.Cost, workload.Cost{Resource: "quota:" + quota.Name, Min: int64(q.Units), Max: int64(q.Units)})
			}
		}
	}
	if out.Elastic() {
		out.Curve.SerialPPM = b.serial(a)
		out.Single = work(a, out.Curve)
	}
	out.Profiled = b.profiled(a, &out)
	if out.Class != "" && (b.known == "" || b.known == KnownSizes) {
		out.Size = int64(min(a.SizeHint, math.MaxInt64))
	}
	return out
}

// class is the name of an action's class, over all namespaces.
func (b *builder) class(a *action) string {
	c := b.past.last.Class(a.Class)
	if c == nil {
		return ""
	}
	if ns := b.past.last.Namespace(a.Namespace); ns != nil && ns.Name != "default" {
		return ns.Name + "/" + c.Name
	}
	return c.Name
}

// uses are the cores that an attempt had, and for how long of its execution. Of one that
// ended before the log begins, how much CPU time it used says that.
func (a *action) uses() []held {
	all := int64(0)
	for _, h := range a.held {
		all += h.ns
	}
	if all <= 0 {
		used := (a.Result.CPUNS + a.Result.ExecNS/2) / a.Result.ExecNS
		return []held{{sim.Width{Units: max(int64(a.CoresMin), min(int64(a.CoresMax), used))}, a.Result.ExecNS}}
	}
	out := make([]held, len(a.held))
	for i, h := range a.held { // to start and to report is not to execute
		out[i] = held{h.units, int64(state.MulDiv(uint64(h.ns), uint64(a.Result.ExecNS), uint64(all)))}
	}
	return out
}

// work is how long an action would have taken with one core.
func work(a *action, c workload.Curve) (ns int64) {
	const trial = 1 << 40
	for _, h := range a.uses() {
		took := h.units.Duration(func(units int64) int64 { return c.Duration(trial, units) })
		ns += int64(state.MulDiv(uint64(h.ns), trial, uint64(took)))
	}
	return max(1, min(ns, scale.DurationMax))
}

// serial returns the serial fraction of an elastic action, in parts per million.
func (b *builder) serial(a *action) int64 {
	if p := profile(a); p != nil && p.Serial {
		b.curves.client++
		return p.SerialPPM
	} else if p != nil && len(p.Points) > 0 { // as fast as it says with the most cores
		last := p.Points[len(p.Points)-1]
		b.curves.client++
		return fit([]scale.Seen{{Units: 1, NS: million, Attempts: 1},
			{Units: int32(last.Units), NS: max(1, million*million/(int64(last.Units)*last.Ratio)), Attempts: 1}})
	}
	if ppm, ok := b.learned[a.Class]; ok {
		b.curves.learned++
		return ppm
	}
	if c := b.past.last.Class(a.Class); c != nil && len(c.Seen) > 1 {
		var seen []scale.Seen
		for i := range c.Seen {
			seen = append(seen, scale.Seen{Units: int32(c.Seen[i].Units), NS: c.Seen[i].MeanNS, Attempts: c.Seen[i].Weight()})
		}
		b.learned[a.Class] = fit(seen)
		b.curves.learned++
		return b.learned[a.Class]
	}
	b.curves.assumed++
	return int64(scale.AssumedCurve)
}

// fit returns the serial fraction of Amdahl's law, T*(s + (1-s)/units), that is closest to
// what was seen of several numbers of units: by least squares, in thousandths.
func fit(seen []scale.Seen) (ppm int64) {
	var n, x, y, xx, xy float64
	for _, s := range seen {
		w, at, ns := float64(s.Attempts), 1/float64(s.Units), float64(s.NS)
		n, x, y, xx, xy = n+w, x+w*at, y+w*ns, xx+w*at*at, xy+w*at*ns
	}
	parallel := (n*xy - x*y) / (n*xx - x*x)
	constant := (y - parallel*x) / n
	share := math.Round(1000 * constant / (constant + parallel))
	switch {
	case parallel <= 0: // more units were slower: they bring nothing
		return million
	case constant <= 0:
		return 0
	}
	return int64(share) * (million / 1000)
}

func profile(a *action) *state.Profile {
	if a.Needs == nil {
		return nil
	}
	return a.Needs.Profile
}

// profiled is what rota is told of an action's duration.
func (b *builder) profiled(a *action, sim *workload.Action) int64 {
	p := profile(a)
	switch {
	case b.known == KnownProfiles:
		return sim.Single
	case b.known != "" || p == nil || p.SingleNS == 0:
		return 0
	case sim.Elastic() || a.CoresMin <= 1:
		return p.SingleNS
	}
	curve := sched.CurveOf(p)
	if curve == nil {
		return p.SingleNS
	}
	d, err := scale.Scaled(sched.DoPSetOf(&a.Action), curve, p.SingleNS)
	if err != nil {
		return 0
	}
	ns, _ := d.Duration(int32(a.CoresMin))
	return ns
}

// observe is how an action went.
func (b *builder) observe(a *action) evaluate.Observed {
	busy := int64(0)
	for _, h := range a.uses() {
		busy += h.units.Held(h.ns)
	}
	return evaluate.Observed{
		Class: b.class(a), Submitted: a.SubmittedAt, ACT: a.EndedAt - a.SubmittedAt, Queue: a.StartedAt - a.SubmittedAt,
		Exec: a.Result.ExecNS, Busy: busy, Failed: a.State == state.ActionFailed, Attempts: int64(a.Attempt),
	}
}

// nodes are those of the pool, with what is to be different.
func (b *builder) nodes(o *Options) (out []workload.Node, err error) {
	for _, name := range b.past.order {
		n := b.past.nodes[name]
		if n.Pool != b.pool.ID || n.CoreCount() == 0 {
			continue
		}
		node := workload.Node{Memory: int64(n.Memory), Resizes: n.Resizes}
		for _, numa := range n.NUMA {
			node.NUMA = append(node.NUMA, int64(numa.Len()))
		}
		out = append(out, node)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no node of pool %q has cores", ErrNothing, b.pool.Name)
	}
	if own := len(out); o.Nodes > 0 {
		for i := own; i < o.Nodes; i++ {
			out = append(out, out[i%own])
		}
		out = out[:o.Nodes]
	}
	for i := range out {
		if o.Cores > 0 {
			out[i].NUMA = divided(int64(o.Cores), len(out[i].NUMA))
		}
	}
	return out, nil
}

// divided are cores in so many parts, or in one if they cannot be divided evenly.
func divided(cores int64, parts int) []int64 {
	if cores%int64(parts) != 0 {
		return []int64{cores}
	}
	out := make([]int64, parts)
	for i := range out {
		out[i] = cores / int64(parts)
	}
	return out
}
