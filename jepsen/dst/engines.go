package dst

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// models are those that actions name.
var models = []string{"reward", "judge", "teacher", "critic"}

// How often an operator declares, changes or removes an engine, and how often a node says what
// became of those that it has.
const (
	engineChangesPerHour = 20
	engineReportsPerHour = 300
)

// engines are what operators do to engines, and what nodes say of them. There are no engines in
// the simulation: what is said is made up, and the cluster takes it as it comes.
func (p *Plan) engines(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 7)
	for range models {
		p.add(Event{At: d.N(minute), Kind: Engine, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*engineChangesPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Engine, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*engineReportsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Engines, On: int(d.N(int64(c.nodes))), Luck: d.Uint64()})
	}
}

// changeEngine declares how a model is served, again or in another way, or removes that. It is
// refused while the level is not active.
func (c *client) changeEngine(luck uint64) {
	d := sim.Draws(luck).Of(2, 0)
	model := models[d.N(int64(len(models)))]
	if d.Chance(200_000) {
		c.do(&logv1.Command{Verb: &logv1.Command_RemoveEngine{RemoveEngine: &logv1.RemoveEngine{Model: model}}}, 1, ignore)
		return
	}
	spec := fmt.Appendf(nil, "spec %d", d.N(3))
	c.do(&logv1.Command{Verb: &logv1.Command_RegisterEngine{RegisterEngine: &logv1.RegisterEngine{Model: model, Spec: spec}}}, triesMax, ignore)
}

// reportEngines says something of engines on a node, mostly where a model is resident. Now and
// then it comes from before the node was given up.
func (c *client) reportEngines(on int, luck uint64) {
	d := sim.Draws(luck).Of(2, 0)
	v := &logv1.ReportEngines{Node: nodeName(on)}
	var there []state.Resident
	c.w.servers[0].rep.View(func(s *state.State) {
		if n := s.NodeByName(v.Node); n != nil {
			v.Incarnation, there = n.Incarnation, s.ModelsOn(n.ID)
		}
	})
	if d.Chance(150_000) {
		v.Incarnation = uint64(d.Between(1, 20))
	}
	for range d.Between(1, 3) {
		r := &logv1.EngineReport{
			Model: models[d.N(int64(len(models)))], Gpus: uint32(1) << d.N(3), State: uint32(d.Between(1, 7)), Starts: uint64(d.Between(0, 3)),
			Failures: uint64(d.N(3)), Generation: uint64(d.N(9)), Gone: d.Chance(150_000), Message: "made up",
		}
		if len(there) > 0 && d.Chance(800_000) {
			m := there[d.N(int64(len(there)))]
			r.Model, r.First, r.Gpus = m.Model, m.Chunk.First, m.Chunk.Units
		}
		if d.Chance(500_000) {
			r.State, r.SetUpNs = uint32(state.EngineReady), d.Skewed(1, 60*second)
		}
		v.Reports = append(v.Reports, r)
	}
	c.do(&logv1.Command{Verb: &logv1.Command_ReportEngines{ReportEngines: v}}, 3, ignore)
}
