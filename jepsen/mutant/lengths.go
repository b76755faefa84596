package mutant

// lengths are bugs of what is learned of how much trajectories generate.
var lengths = []Mutant{
	{
		Name: "longest-learned-alone",
		Bug:  "a class remembers the trajectories that ended last, which are the longest of a step",
		Edits: []Edit{{"sched/predict/learn.go",
			"	return int(mixed(seen) % min(seen+1, memory))\n",
			"	return int(seen % state.LengthExamplesMax)\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched/predict", "TestTheOrderOfEndsInAStepTeachesNothing"}},
	},
	{
		Name: "cut-off-learned-as-whole",
		Bug:  "a trajectory that was cut off in the middle of a turn teaches as if it had come to its end",
		Edits: []Edit{{"fsm/generation.go",
			"old.Generating || reason == state.EndNodeLost || x.endedByRollout(t))",
			"reason == state.EndNodeLost || x.endedByRollout(t))"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"jepsen/model", "TestRandomGenerations"}},
	},
	{
		Name: "unfinished-siblings-count",
		Bug:  "a sibling that made its sample and generates on counts as finished",
		Edits: []Edit{{"fsm/generation.go",
			"o != nil && o.Ended && o.Trace",
			"o != nil && o.Trace"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"jepsen/model", "TestRandomGenerations"}},
	},
	{
		Name:  "outdated-service-prediction",
		Bug:   "what a predictor service said of a turn that is over counts",
		Edits: []Edit{{"fsm/predictor.go", " || old.Trace.Turns != p.Turns {", " {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"jepsen/model", "TestRandomGenerations"}},
	},
	{
		Name:  "service-prediction-stays",
		Bug:   "what a predictor service said counts after the next turn",
		Edits: []Edit{{"fsm/generation.go", "	g.Service = state.ServicePrediction{}\n	x.expect", "	if g.Service.Said {\n		return\n	}\n	x.expect"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"jepsen/model", "TestRandomGenerations"}},
	},
}
