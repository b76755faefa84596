package mutant

// sharedCores are bugs of what lets attempts share cores.
var sharedCores = []Mutant{
	{
		Name: "shared-before-left",
		Bug:  "an agent moves an attempt to shared cores that another has to itself yet",
		Edits: []Edit{{"agent/plan/cpus.go",
			"	return u.own == 0 && (a.shares || u.share == 0)\n",
			"	return a.shares || u == (users{})\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/plan", "TestSharersWaitForOwners"}},
	},
	{
		Name: "own-before-left",
		Bug:  "an agent gives an attempt a core to itself that others share yet",
		Edits: []Edit{{"agent/plan/cpus.go",
			"	return u.own == 0 && (a.shares || u.share == 0)\n",
			"	return u.own == 0\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/plan", "TestOwnersWaitForSharers"}},
	},
	{
		Name: "shared-cores-not-told",
		Bug:  "an agent is not told which cores are shared when these change",
		Edits: []Edit{{"server/dispatch/stream.go",
			" && (!a.Shares || told.shared == node.Shared) {\n",
			" {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/dispatch", "TestSharedCPUsAreToldAgainWhenTheyChange"}},
	},
	{
		Name: "fixed-cores-shared",
		Bug:  "an action that is to keep its cores shares some",
		Edits: []Edit{{"fsm/state/sharedcores.go",
			"return !r.Fixed && r.CoresMin == 1",
			"return r.CoresMin == 1"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched", "TestWhoShares"}},
	},
	{
		Name: "shared-for-nobody",
		Bug:  "attempts that have run for long share cores though nobody waits",
		Edits: []Edit{{"sched/sharedcores.go",
			" || !d.short() {\n",
			" {\n"}},
		Hunt: simulate(),
	},
	{
		Name: "shared-for-ever",
		Bug:  "cores stay shared when the last attempt that shared them has ended",
		Edits: []Edit{{"fsm/state/sharedcores.go",
			"	if r.Sharing == 1 {\n		cores = CoreSet{}\n	}\n",
			""}},
		Hunt: simulate(),
	},
	{
		Name: "never-old",
		Bug:  "a node is not looked at again when an attempt is old enough to share cores",
		Edits: []Edit{{"sched/sharedcores.go",
			"	at := d.oldAt\n	if len(d.old) == 0 {\n",
			"	at := int64(0)\n	if len(d.old) == 0 {\n"}},
		Hunt: simulate(),
	},
}
