package mutant

import "time"

// workers are bugs of what decides which worker generates for a trajectory, and in which order.
var workers = []Mutant{
	{
		Name: "stale-worker-generates",
		Bug:  "a worker that lacks the current version of its policy gets trajectories",
		Edits: []Edit{{"fsm/state/worker.go",
			"	case s.Stale(r):\n		return WorkerStale\n",
			""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts"}},
	},
	{
		Name: "slots-exceeded",
		Bug:  "a worker gets one trajectory more than it has slots",
		Edits: []Edit{{"sched/place/worker/worker.go",
			"c.State == state.WorkerUp && c.Free() > 0 }",
			"c.State == state.WorkerUp && c.Load.Trajectories <= c.Row.SlotsOrMax() }"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched/place/worker", "TestEveryFreeSlotIsUsed"}},
	},
	{
		Name: "move-while-generating",
		Bug:  "a plan moves a trajectory in the middle of a turn",
		Edits: []Edit{{"fsm/generation.go",
			"g.Ended || g.Generating || g.Worker == \"\"",
			"g.Ended || g.Worker == \"\""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts"}},
	},
	{
		Name: "shortest-trajectory-first",
		Bug:  "the priority of a trajectory falls with what it is predicted to generate",
		Edits: []Edit{{"sched/place/worker/worker.go",
			"	return uint32(p - p%priorityStep)\n",
			"	return uint32(state.GenerationPriorityMax - p + p%priorityStep)\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched/place/worker", "TestPriority"}},
	},
	{
		Name: "waits-for-ever",
		Bug:  "a trajectory that is predicted to generate little is passed over for ever",
		Edits: []Edit{{"fsm/state/generation.go",
			"o.since+GenerationWaitNSMax <= s.meta.Now",
			"o.since > s.meta.Now"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm/state", "TestNextWaiting"}},
	},
	{
		Name: "failure-counted-by-each-gateway",
		Bug:  "each gateway that sees the same failure doubles the time until the worker is tried again",
		Edits: []Edit{{"fsm/worker.go",
			"old == nil || old.RetryAt != 0 || !r.Failed",
			"old == nil || !r.Failed"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts"}},
	},
	{
		Name: "ended-route-not-told",
		Bug:  "gateways are not told that a trajectory has ended",
		Edits: []Edit{{"fsm/generation.go",
			" || old.Ended != g.Ended {\n",
			" {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/rpc", "TestTheLifeOfAGeneration"}},
	},
	{
		Name: "stale-worker-used-by-gateways",
		Bug:  "gateways send requests to a worker that lacks the current version of its policy",
		Edits: []Edit{{"server/gateway/table.go",
			"	return w.state == rotav1.WorkerState_WORKER_STATE_UP ||",
			"	return w.state == rotav1.WorkerState_WORKER_STATE_UP || w.state == rotav1.WorkerState_WORKER_STATE_STALE ||"}},
		Hunt: Hunt{Engine: Processes, Args: []string{"gateways"}, Within: 10 * time.Minute},
	},
	{
		Name: "seam-without-the-last-token",
		Bug:  "when a worker fails, the next one is not told the last event that the client has, and generates it again",
		Edits: []Edit{{"server/gateway/generation.go",
			"	g.text = append(g.text, text...)\n",
			"	g.text, g.unsaid = append(g.text, g.unsaid...), slices.Clone(text)\n"},
			{"server/gateway/generation.go",
				"	done   bool // [DONE]\n",
				"	done   bool // [DONE]\n	unsaid []byte\n"}},
		Hunt: Hunt{Engine: Processes, Args: []string{"gateways"}, Within: 10 * time.Minute},
	},
}
