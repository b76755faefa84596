package mutant

// rewards are bugs of reward functions.
var rewards = []Mutant{
	{
		Name:  "reward-without-maximum",
		Bug:   "a reward function has as many replicas as its calls need, whatever its maximum",
		Edits: []Edit{{"sched/scale/replicas/replicas.go", "max(uint64(least), min(full, uint64(most)))", "max(uint64(least), min(full, uint64(most)+1))"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"sched/scale/replicas", "TestDecisionsAreSound"}},
	},
	{
		Name:  "reward-without-pause",
		Bug:   "a replica that failed is replaced at once",
		Edits: []Edit{{"fsm/rewardscale.go", "	if r.RetryAt <= x.now() {\n", "	if true {\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/rewards"}},
	},
	{
		Name:  "reward-drains-again",
		Bug:   "a gateway can use a replica that drains, and says so",
		Edits: []Edit{{"fsm/reward.go", "	case c.Ready && p.State == state.ReplicaStarting:\n", "	case c.Ready:\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestRandomRewards"}},
	},
	{
		Name:  "reward-never-forgotten",
		Bug:   "the calls of a gateway that is gone count for ever",
		Edits: []Edit{{"fsm/rewardscale.go", "func(g state.RewardGateway) bool { return g.At+rewardGatewayFor <= x.now() }", "func(g state.RewardGateway) bool { return g.At > x.now() }"}},
		Hunt:  simulate(),
	},
}
