package mutant

// shares are bugs of the shares and limits of namespaces.
var shares = []Mutant{
	{
		Name:  "weights-ignored",
		Bug:   "all namespaces are charged alike, whatever their weights are",
		Edits: []Edit{{"sched/order/clock.go", "lead+us/int64(v.SettingsOf(ns).Weight)))", "lead+us))"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestWeightsDivide"}},
	},
	{
		Name:  "idle-credit",
		Bug:   "a namespace that was idle is owed what it left to others",
		Edits: []Edit{{"sched/order/clock.go", "		if !v.Waits(c.Namespace, q) {", "		if false {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestWhatIsIdleIsLent"}},
	},
	{
		Name:  "limit-ignored",
		Bug:   "actions of a namespace start that holds all the cores that it may have",
		Edits: []Edit{{"sched/order/fair.go", "	case s.CoresMax > 0 && a.CoresMin > 0 && held.Cores+held.Resuming+held.Limited+n*int(a.CoresMin) > int(s.CoresMax):", "	case false:"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestLimitsHold"}},
	},
	{
		Name:  "trajectories-unlimited",
		Bug:   "a namespace opens one trajectory more than it may",
		Edits: []Edit{{"fsm/fair.go", "most > 0 && has >= int(most) {", "most > 0 && has > int(most) {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/shares-trajectories"}},
	},
	{
		Name:  "memory-of-trajectories-uncounted",
		Bug:   "the limit of a namespace's memory counts running actions only",
		Edits: []Edit{{"fsm/state/fairindex.go", "		h.Memory += s.Opened(id).Memory\n", ""}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/shares-memory"}},
	},
	{
		Name:  "one-namespace-takes-all",
		Bug:   "a namespace takes all of what is bounded for the cluster: request IDs, classes, labels",
		Edits: []Edit{{"fsm/request.go", "x.s.NamespaceCount() == 1 || share.Room(most, all, own())", "x.s.NamespaceCount() == 1 || share.Room(most, all, 0)"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestNoNamespaceFillsWhatAllShare"}},
	},
	{
		Name:  "memory-freed-unnoticed",
		Bug:   "the end of a trajectory does not wake actions that wait for the memory of their namespace",
		Edits: []Edit{{"fsm/trajectory.go", "	if t.Memory > 0 {\n", "	if t.Memory > 0 && false {\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/shares-memory"}},
	},
	{
		Name:  "memory-of-pending-counted",
		Bug:   "the usage of a namespace counts memory of trajectories before they have a node",
		Edits: []Edit{{"fsm/use.go", "x.s.Opened(t.Namespace).Placed", "x.s.Opened(t.Namespace).Memory"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestMemoryOfTrajectories"}},
	},
	{
		Name:  "limit-freed-unnoticed",
		Bug:   "the end of an action on one node does not wake those of its namespace that wait for its limit on others",
		Edits: []Edit{{"fsm/fair.go", "	if limited = x.s.AnySettings() && x.s.SettingsOf(ns).Limits(); limited {\n", "	if limited {\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestALimitFreedElsewhere"}},
	},
	{
		Name:  "limit-looks-once",
		Bug:   "when a namespace holds less, only the queue with its oldest action is looked at",
		Edits: []Edit{{"fsm/fair.go", "		if !ok || x.runsAllItMay(x.room.namespace) {", "		if !ok || x.room.after > 0 {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestALimitFreedElsewhere"}},
	},
	{
		Name:  "one-look-for-two-queues",
		Bug:   "actions of a namespace that do not fit in the queue of a pool end the look at the queue of the node, too",
		Edits: []Edit{{"sched/order/fair.go", "	q := &l.queues[queue]\n", "	q := &l.queues[0]\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/shares-pinned"}},
	},
	{
		Name:  "never-settled",
		Bug:   "a namespace is charged what its actions take in the mean of all, whatever they took",
		Edits: []Edit{{"sched/order/clock.go", "	own.Lead = ahead(own.Lead, v, ns, int64(usedUS)-int64(chargedUS))\n	own.MeanUS = learned(own.MeanUS, heldUS)\n", ""}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestWeightsDivide"}},
	},
}
