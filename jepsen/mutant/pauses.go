package mutant

// pauses are bugs of paused trajectories: of the state machine, and of agents.
var pauses = []Mutant{
	{
		Name:  "paused-spares",
		Bug:   "the cores of an action that is being frozen are given to others one by one",
		Edits: []Edit{{"fsm/state/rows.go", "r.Least == 0 || r.Ice != IceNone || r.Shares {", "r.Least == 0 || r.Ice > IceWanted || r.Shares {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses-spare"}},
	},
	{
		Name:  "resumed-never-grows",
		Bug:   "an action that is resumed before it was frozen gets none of the cores that have become free meanwhile",
		Edits: []Edit{{"fsm/pause.go", "	x.divides(&n, at.Cores)\n	x.coresFreed(&n)\n}\n\n// resume has", "	if at.Spare() > 0 {\n		x.divides(&n, at.Cores)\n	}\n	x.coresFreed(&n)\n}\n\n// resume has"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses-grow"}},
	},
	{
		Name:  "resumed-without-time",
		Bug:   "a trajectory that was paused at its timeout has none left when it is resumed",
		Edits: []Edit{{"fsm/pause.go", "	u.Deadline = u.PausedAt + u.PauseNS //", "	u.Deadline = u.PausedAt //"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses-timeout"}},
	},
	{
		Name:  "resumed-exceeds-its-limit",
		Bug:   "a resumed action goes on with cores that its namespace may not have",
		Edits: []Edit{{"sched/thaw.go", "	return others == 0 || ", "	return true || others == 0 || "}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses-limit"}},
	},
	{
		Name:  "resumed-is-passed",
		Bug:   "new actions of a namespace take the cores that a resumed one waits for",
		Edits: []Edit{{"sched/order/fair.go", "held.Cores+held.Resuming+held.Limited+n*int(a.CoresMin)", "held.Cores+held.Resuming+n*int(a.CoresMin)"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses-limit"}},
	},
	{
		Name:  "paused-starts",
		Bug:   "an action that is submitted to a paused trajectory is started",
		Edits: []Edit{{"fsm/submit.go", "	a.Aside = x.held(a.Trajectory)\n", ""}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses"}},
	},
	{
		Name:  "paused-keeps-cores",
		Bug:   "what is frozen keeps its cores",
		Edits: []Edit{{"fsm/pause.go", "		x.backToNode(&at)\n		at.Ice = state.IceFrozen\n		x.s.PutAttempt(&at)\n		count++\n", "		at.Ice = state.IceFrozen\n		x.s.PutAttempt(&at)\n		count++\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses"}},
	},
	{
		Name:  "paused-reported-for-another-pause",
		Bug:   "the report of a pause that is over counts for the next",
		Edits: []Edit{{"fsm/pause.go", " || old.Pause != r.Pause {", " {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses"}},
	},
	{
		Name:  "resumed-never-goes-on",
		Bug:   "what is resumed never gets its cores back",
		Edits: []Edit{{"fsm/schedule.go", "	x.thaw()\n	for x.budget > 0 {\n", "	for x.budget > 0 {\n"}, {"fsm/schedule.go", "		x.attend(q)\n		x.thaw()\n", "		x.attend(q)\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/pauses"}},
	},
	{
		Name:  "thawed-without-cores",
		Bug:   "an agent lets what was frozen go on before others have left its CPUs",
		Edits: []Edit{{"agent/plan/freeze.go", "		case !wanted && (a.unsure || !slices.Equal(a.holds, a.wants)): // others are to leave its CPUs first\n", "		case !wanted && (a.unsure || !slices.Equal(a.holds, a.holds)):\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/plan", "TestAFrozenAttemptLeavesItsCPUs"}},
	},
	{
		Name:  "reported-before-frozen",
		Bug:   "an agent says that an attempt is frozen when it has merely asked for that",
		Edits: []Edit{{"agent/plan/freeze.go", "		if wanted && i.frozen && a.resizing == nil {\n", "		if wanted && (i.frozen || i.changing) && a.resizing == nil {\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/plan", "TestAFrozenAttemptLeavesItsCPUs"}},
	},
}
