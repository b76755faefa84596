package mutant

// migrations are bugs of what decides when KV caches are copied, and of who may copy them.
var migrations = []Mutant{
	{
		Name: "transfer-goes-on-after-the-gap",
		Bug:  "a transfer goes on when the last action of its trajectory has ended, and its model may write the KV cache",
		Edits: []Edit{{"fsm/transition.go",
			"		x.gapChanged(t.ID)\n",
			""}},
		Hunt: simulate(),
	},
	{
		Name: "transfer-outside-a-gap",
		Bug:  "a transfer of a trajectory begins though no action of the trajectory is queued or runs",
		Edits: []Edit{{"sched/transmit/transmit.go",
			" && t.State < state.TrajectoryClosing && t.Live > 0\n",
			" && t.State < state.TrajectoryClosing\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched/transmit", "TestWaitsFor"}},
	},
	{
		Name: "node-in-two-transfers",
		Bug:  "a node that is the target of a transfer becomes the target of another",
		Edits: []Edit{{"sched/transmit/transmit.go",
			"	for _, n := range ends {\n		if running := v",
			"	for _, n := range ends[:1] {\n		if running := v"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched/transmit", "TestTheLongestRunOfAllSetsThatFit"}},
	},
	{
		Name: "shortest-migration-first",
		Bug:  "of migrations that share a node the shortest goes first",
		Edits: []Edit{{"fsm/state/migration.go",
			"		return r.Length > o.Length\n",
			"		return r.Length < o.Length\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"sched/transmit", "TestTheLongestRunOfAllSetsThatFit"}},
	},
	{
		Name: "freed-node-not-considered",
		Bug:  "when a transfer has ended, what waits for its nodes goes on waiting",
		Edits: []Edit{{"fsm/migration.go",
			"			x.migrations.ends.add(id)\n",
			""}},
		Hunt: simulate(),
	},
	{
		Name: "transfer-outlives-its-node",
		Bug:  "a transfer is believed to go on when its node was lost and has come back",
		Edits: []Edit{{"fsm/migration.go",
			"	return n.State == state.NodeUp && n.Incarnation == since\n",
			"	return n.State == state.NodeUp && since > 0\n"}},
		Hunt: simulate(),
	},
	{
		Name: "source-not-told",
		Bug:  "the source of a transfer is not told, so it refuses the target",
		Edits: []Edit{{"fsm/migration.go",
			"	x.dirtyNodes.add(m.Source)\n",
			""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm", "TestBothNodesAreToldOfAMigration"}},
	},
	{
		Name: "any-node-may-pull",
		Bug:  "a node can copy what another node was to copy",
		Edits: []Edit{{"agent/migrate.go",
			" && (peer == \"\" || d.GetPeer() == peer) {\n",
			" {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent", "TestAPeerPullsOnlyWhatItMay"}},
	},
}
