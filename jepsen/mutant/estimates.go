package mutant

// estimates are bugs of estimates of starts. Nothing is decided by these, so tests hunt them.
var estimates = []Mutant{
	{
		Name: "estimated-as-if-just-begun",
		Bug:  "what runs is expected to take as long again as it takes in all",
		Edits: []Edit{{"sched/estimatelength.go",
			"func overdue(all, age int64) int64 { return max(all-age, age-all) }",
			"func overdue(all, _ int64) int64 { return all }"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"internal/sim/evaluate", "TestEstimatesOfWhatIsKnownAreExact"}},
	},
	{
		Name: "estimated-without-the-queue",
		Bug:  "an estimate forgets that older actions hold their cores once they have started",
		Edits: []Edit{{"sched/estimateline.go",
			"	s.free.units -= w.needs.units\n",
			""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"internal/sim/evaluate", "TestEstimatesOfWhatIsKnownAreExact"}},
	},
	{
		Name: "estimated-from-the-median-alone",
		Bug:  "p90 is p50: every course of events draws the middle of the class",
		Edits: []Edit{{"sched/estimatelength.go",
			"		out[k] = uint64(2*k+1) * million / (2 * draws)\n",
			"		out[k] = million / 2\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched", "TestEstimateByClass"}},
	},
	{
		Name: "estimated-past-the-window",
		Bug:  "an estimate takes units of a window back as soon as a call ends",
		Edits: []Edit{{"sched/estimateline.go",
			"	if p.quota != nil && !ended {\n",
			"	if false {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched", "TestEstimateQuota"}},
	},
}
