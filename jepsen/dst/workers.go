package dst

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

// How often operators and trainers change a worker, how often a gateway reports, and how many
// workers there are.
const (
	workerChangesPerHour     = 120
	generationReportsPerHour = 900
	workerNames              = 5
)

// workers are what operators and trainers do to workers, and what gateways report. There are no
// engines and no gateways in the simulation: what is reported is made up.
func (p *Plan) workers(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 10)
	for range workerNames {
		p.add(Event{At: d.N(minute), Kind: Worker, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*workerChangesPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Worker, On: int(d.N(clients)), Luck: d.Uint64()})
	}
	for range max(1, p.Length*generationReportsPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Generate, On: int(d.N(clients)), Luck: d.Uint64()})
	}
}

// changeWorker registers a worker, also one that is there, gives it the version of its policy,
// drains it, or removes it.
func (c *client) changeWorker(luck uint64) {
	d := sim.Draws(luck).Of(6, 0)
	name, policy := fmt.Sprintf("worker-%d", d.N(workerNames)), policyName(d.N(policies))
	version, there := uint64(0), false
	c.w.view(func(s *state.State) {
		w := s.Worker(name)
		if there = w != nil; there && d.Chance(800_000) {
			policy = w.Policy
		}
		if p := s.Policy(policy); p != nil {
			version = p.Version - min(p.Version, uint64(d.Skewed(0, 2)))
		}
	})
	if d.Chance(100_000) {
		c.do(affinity(&d, policy), triesMax, ignore)
		return
	}
	switch n := d.N(100); {
	case n < 30 || !there:
		c.do(&logv1.Command{Verb: &logv1.Command_RegisterWorker{RegisterWorker: &logv1.RegisterWorker{
			Name: name, Policy: policy, Url: "http://" + name, Node: nodeName(int(d.N(int64(c.w.config.nodes)))), Hardware: hardwareName(d.N(3)), Version: version,
			Slots: uint32(d.N(5)), Cost: uint64(d.N(3)), Prefill_1KNs: d.N(second), Profile: []*logv1.WorkerProfilePoint{{BatchSize: 1, TokenNs: d.Between(1, 40) * millisecond}},
		}}}, triesMax, ignore)
	case n < 90:
		v := &logv1.UpdateWorker{Name: name, Version: &version, Up: d.Chance(200_000)}
		if d.Chance(300_000) {
			draining := d.Chance(400_000)
			v.Draining = &draining
		}
		c.do(&logv1.Command{Verb: &logv1.Command_UpdateWorker{UpdateWorker: v}}, triesMax, ignore)
	default:
		c.do(&logv1.Command{Verb: &logv1.Command_RemoveWorker{RemoveWorker: &logv1.RemoveWorker{Name: name}}}, 1, ignore)
	}
}

// affinity says which hardware a task class goes to, or takes that back.
func affinity(d *sim.Draw, policy string) *logv1.Command {
	v := &logv1.SetAffinity{Policy: policy, TaskClass: fmt.Sprintf("task-%d", d.N(2)), CostPercent: uint32(d.N(101)), Remove: d.Chance(200_000)}
	if d.Chance(700_000) {
		v.Hardware, v.SpillPercent = []string{hardwareName(d.N(2))}, uint32(d.N(2)*50)
	}
	return &logv1.Command{Verb: &logv1.Command_SetAffinity{SetAffinity: v}}
}

func hardwareName(n int64) string { return fmt.Sprintf("hardware-%d", n) }

// generation is what is said of a member that workers generate for; nil for some.
func generation(d *sim.Draw, policy string) *logv1.GenerationSpec {
	if d.Chance(300_000) {
		return nil
	}
	g := &logv1.GenerationSpec{Policy: policy, TaskClass: fmt.Sprintf("task-%d", d.N(2)), PromptTokens: uint32(d.N(4000))}
	if d.Chance(500_000) {
		g.Hardware = []string{hardwareName(d.N(4))}
	}
	return g
}

// reportGenerations says what some trajectories generated, mostly where they are, and now and then
// that a worker failed. Some trajectories are suspended and resumed.
func (c *client) reportGenerations(e Event) {
	d := sim.Draws(e.Luck).Of(7, 0)
	var live []*state.Generation // rows never change
	c.w.view(func(s *state.State) {
		s.Generations(0, func(g *state.Generation) bool {
			if !g.Ended || d.Chance(20_000) {
				live = append(live, g)
			}
			return true
		})
	})
	c.predictGenerations(e, live)
	v := &logv1.ReportGenerations{Request: c.request(&d, e)}
	if d.Chance(60_000) {
		v.Workers = []*logv1.WorkerReport{{Worker: fmt.Sprintf("worker-%d", d.N(workerNames)), Failed: true, Message: "made up"}}
	}
	for range min(len(live), int(d.Between(1, 3))) {
		g := live[d.N(int64(len(live)))]
		if d.Chance(30_000) {
			c.do(&logv1.Command{Verb: &logv1.Command_SuspendTrajectory{SuspendTrajectory: &logv1.SuspendTrajectory{
				Id: uint64(g.Trajectory), Resume: g.Suspended,
			}}}, triesMax, ignore)
		}
		r := &logv1.GenerationReport{
			TrajectoryId: uint64(g.Trajectory), Worker: g.Worker, Turns: uint32(d.N(3)), OutputTokens: uint64(d.Skewed(0, 5000)), ContextTokens: uint64(d.N(40_000)),
			GenerateNs: d.Skewed(0, 60*second), ToolNs: d.Skewed(0, 60*second), FinishReason: "tool_calls", Generating: d.Chance(400_000),
		}
		if d.Chance(200_000) {
			r.FinishReason = "stop"
		}
		v.Generations = append(v.Generations, r)
	}
	c.do(&logv1.Command{Verb: &logv1.Command_ReportGenerations{ReportGenerations: v}}, 3, func(r *logv1.Result) {
		if r.Refusal == nil {
			c.w.witness.generated += len(v.Generations)
		}
	})
}

// predictGenerations says what a predictor service may have answered the leader, now and then also about
// a turn that is over.
func (c *client) predictGenerations(e Event, live []*state.Generation) {
	d := sim.Draws(e.Luck).Of(7, 1)
	if len(live) == 0 || d.Chance(700_000) {
		return
	}
	v := &logv1.PredictGenerations{}
	for range d.Between(1, 4) {
		g := live[d.N(int64(len(live)))]
		v.Predictions = append(v.Predictions, &logv1.GenerationPrediction{
			TrajectoryId: uint64(g.Trajectory), Turns: g.Trace.Turns - min(g.Trace.Turns, uint32(d.Skewed(0, 1))),
			Tokens: uint64(d.Skewed(0, 50_000)), TokensP50: uint64(d.Skewed(0, 50_000)), TokensP90: uint64(d.Skewed(0, 100_000)), TurnsLeft: uint32(d.N(20)),
		})
	}
	c.do(&logv1.Command{Verb: &logv1.Command_PredictGenerations{PredictGenerations: v}}, triesMax, ignore)
}
