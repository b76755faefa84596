package mutant

// gangs are bugs of gangs.
var gangs = []Mutant{
	{
		Name: "gang-in-part",
		Bug:  "a gang starts with the members that fit",
		Edits: []Edit{
			{"sched/place/gang/gang.go", "	if members > 0 {\n		return nil\n	}\n	return shares\n", "	return shares\n"},
			{"fsm/gang.go", "	state.Assert(len(members) == 0, \"gang %d is started without %d of its actions\", first.ID, len(members))\n", ""},
		},
		Hunt: simulate(),
	},
	{
		Name:  "gang-goes-on",
		Bug:   "the members of a gang go on when one has failed",
		Edits: []Edit{{"fsm/gang.go", "	if a.Gang != 0 && a.State != state.ActionSucceeded && a.GangEndedBy == 0 {\n", "	if a.Gang != 0 && a.State != state.ActionSucceeded && a.State != state.ActionFailed && a.GangEndedBy == 0 {\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "gang-told-in-part",
		Bug:   "a gang that is ended over several entries is forgotten after the first",
		Edits: []Edit{{"fsm/gang.go", "		if x.budget < lossCost {\n			return true\n		}\n		x.budget -= lossCost\n		x.endWithGang(a, cause)\n", "		if x.budget < lossCost {\n			return false\n		}\n		x.budget -= lossCost\n		x.endWithGang(a, cause)\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestEveryMemberOfALargeGangIsToldToEnd"}},
	},
	{
		Name:  "gang-not-spread",
		Bug:   "members that each ask for a node of their own share one",
		Edits: []Edit{{"sched/gang.go", "	if first.GangSpread {\n		return 1\n	}\n	return int(first.GangSize)\n", "	return int(first.GangSize)\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "gang-never-reserves",
		Bug:   "no nodes are reserved for a gang, however often it was passed by",
		Edits: []Edit{{"sched/gang.go", "	shares := s.choose(s.later)\n	p.examined += s.steps\n	return Decision{ReserveGang: first, Shares: shares}\n", "	return Decision{ReserveGang: s.first}\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestAGangIsNotOvertakenForEver"}},
	},
	{
		Name:  "gang-stays-aside",
		Bug:   "a gang that waits aside for GPUs is forgotten when they are well again",
		Edits: []Edit{{"fsm/gpuhealth.go", "	x.gangsRecalled(n)\n", ""}},
		Hunt:  simulate(),
	},
	{
		Name:  "gang-ranks-mixed",
		Bug:   "nodes are given to the members of a gang from the last rank on",
		Edits: []Edit{{"fsm/gang.go", "		for _, a := range members[:s.Members] {\n", "		for i := range s.Members {\n			a := members[s.Members-1-i]\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "gang-hosts-mixed",
		Bug:   "a member is told the hosts of its gang in another order than that of the ranks",
		Edits: []Edit{{"server/dispatch/gang.go", "			place.Hosts[m.Rank()] = hostOf(n)\n", "			place.Hosts[a.GangSize-1-m.Rank()] = hostOf(n)\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"server/dispatch", "TestAMemberIsToldTheHostsOfItsGang"}},
	},
	{
		Name:  "gang-meets-nowhere",
		Bug:   "each member of a gang is told another port to meet at",
		Edits: []Edit{{"agent/gang.go", "	first := action - uint64(gang.GetRank())\n", "	first := action\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent", "TestAMemberFindsItsGang"}},
	},
}
