package dst

import (
	"math/bits"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// How often a node says that GPUs of it are sick, or well again, and how often an operator takes
// some out of use.
const (
	sickGPUsPerHour     = 60
	disabledGPUsPerHour = 20
)

// gpuHealth is what nodes and operators say of GPUs. There are no GPUs in the simulation that
// could break: what is said is made up, and taken back after a while.
func (p *Plan) gpuHealth(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 8)
	for range max(2, p.Length*sickGPUsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: SickGPUs, On: int(d.N(int64(c.nodes))), For: d.Skewed(second, 2*minute), Luck: d.Uint64()})
	}
	for range max(1, p.Length*disabledGPUsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: DisableGPUs, On: int(d.N(int64(c.nodes))), For: d.Skewed(second, 2*minute), Luck: d.Uint64()})
	}
}

// reportGPUs says that some GPUs of a node are sick: now and then in the name of an incarnation
// that is over.
func (c *client) reportGPUs(on int, luck uint64) {
	d := sim.Draws(luck).Of(3, 0)
	v := &logv1.ReportGpus{Node: nodeName(on), Sick: c.drawGPUs(on, &d)}
	v.Incarnation = c.incarnationOf(on)
	if d.Chance(100_000) {
		v.Incarnation = uint64(d.Between(1, 20))
	}
	for range bits.OnesCount64(v.Sick) {
		v.Reasons = append(v.Reasons, []string{"XID 79", "NVLink down"}[d.N(2)])
	}
	c.do(&logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: v}}, 3, ignore)
}

// disableGPUs takes some GPUs of a node out of use, or brings some back that may be sick.
func (c *client) disableGPUs(on int, luck uint64) {
	d := sim.Draws(luck).Of(3, 0)
	c.do(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{
		Name: nodeName(on), Gpus: c.drawGPUs(on, &d), Draining: d.Chance(700_000), Reason: "made up",
	}}}, 3, ignore)
}

// healGPUs has all GPUs of a node well and in use.
func (c *client) healGPUs(on, tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: &logv1.ReportGpus{Node: nodeName(on), Incarnation: c.incarnationOf(on)}}}, tries, ignore)
	all := uint64(0)
	c.w.view(func(s *state.State) {
		if n := s.NodeByName(nodeName(on)); n != nil {
			all = uint64(state.AllGPUs(n.GPUs.Count))
		}
	})
	if all != 0 {
		c.do(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: nodeName(on), Gpus: all}}}, tries, ignore)
	}
}

// drawGPUs draws one or a few GPUs that a node has, mostly.
func (c *client) drawGPUs(on int, d *sim.Draw) (set uint64) {
	count := int64(1)
	c.w.view(func(s *state.State) {
		if n := s.NodeByName(nodeName(on)); n != nil && n.GPUs.Count > 0 {
			count = int64(n.GPUs.Count)
		}
	})
	if d.Chance(50_000) {
		count++
	}
	for range d.Between(1, 3) {
		set |= 1 << min(d.N(count), 63)
	}
	return set
}

func (c *client) incarnationOf(on int) (incarnation uint64) {
	c.w.view(func(s *state.State) {
		if n := s.NodeByName(nodeName(on)); n != nil {
			incarnation = n.Incarnation
		}
	})
	return incarnation
}

// loseGPUs takes GPUs of a node out of use for a while.
func (c *client) loseGPUs(e Event) {
	if e.Kind == SickGPUs {
		c.reportGPUs(e.On, e.Luck)
	} else {
		c.disableGPUs(e.On, e.Luck)
	}
	c.w.undoAfter(e.For, func() { c.healGPUs(e.On, triesMax) })
}
