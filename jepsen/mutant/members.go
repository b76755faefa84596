package mutant

// members are bugs of groups with members: of who has their GPUs, and until when.
var members = []Mutant{
	{
		Name:  "granted-beside-actions",
		Bug:   "a turn is granted while actions still run on members of its group",
		Edits: []Edit{{"sched/turn.go", "	case holder == nil && occupied(v, g):\n", "	case holder == nil && occupied(v, g) && d.Examined < 0:\n"}},
		Hunt:  membersTest("fsm", "TestMembersAreNeverGivenTwice"),
	},
	{
		Name:  "gap-without-end",
		Bug:   "an action gets members of a group though it does not end before the next reservation",
		Edits: []Edit{{"sched/gpuview.go", "		if w.until <= c.until {\n", "		if c.until > 0 {\n"}},
		Hunt:  membersTest("sched", "TestActionsInGapsEndInTime"),
	},
	{
		Name:  "set-up-forgotten-in-a-gap",
		Bug:   "whether an action ends within a gap is judged without its set-up",
		Edits: []Edit{{"sched/gap.go", "	return state.Saturated(longest, a.GPUs().SetUpNS), known\n", "	return longest, known\n"}},
		Hunt:  membersTest("sched", "TestActionsInGapsEndInTime"),
	},
	{
		Name:  "mean-instead-of-quantile",
		Bug:   "half of the attempts of a class last longer than what a gap is judged by",
		Edits: []Edit{{"sched/gap.go", "	gapPPM = 950_000\n", "	gapPPM = 500_000\n"}},
		Hunt:  membersTest("sched", "TestActionsInGapsEndInTime"),
	},
	{
		Name:  "gap-within-a-reservation",
		Bug:   "members are left to actions within a reservation, whose job may come at any time",
		Edits: []Edit{{"sched/gap.go", "		case p.isDedicated(r) || start <= p.now && p.now < end:\n", "		case p.isDedicated(r) || start <= p.now && p.now < end && end < 0:\n"}},
		Hunt:  membersTest("sched", "TestGapEndsWhereTheNextReservationBegins"),
	},
	{
		Name:  "backfill-leaves-the-gap-open",
		Bug:   "an action starts on the members of a group on which a job whose turn waits was just placed",
		Edits: []Edit{{"fsm/placement.go", "	x.closeGap(k.Group) // its turns may wait already\n", ""}},
		Hunt:  membersTest("fsm", "TestBackfillClosesTheGap"),
	},
	{
		Name:  "replaced-member-keeps-its-gpus",
		Bug:   "what is in use of a member that a spare has replaced stays idle beside actions that wait",
		Edits: []Edit{{"fsm/members.go", "		x.offerMembers(left) // what is in use of those that were replaced\n", ""}},
		Hunt:  membersTest("fsm", "TestAReplacedMemberLeavesItsGPUs"),
	},
	{
		Name:  "spare-without-a-look",
		Bug:   "the member of a group that is deleted is offered to no group that lacks one",
		Edits: []Edit{{"fsm/nodegroup.go", "	x.offerMembers(g.Members.List)\n", "	x.offerGap(g)\n"}},
		Hunt:  membersTest("fsm", "TestWhatBecomesPossibleIsLookedAt"),
	},
	{
		Name:  "kept-for-what-never-comes",
		Bug:   "a node whose GPUs join a group stays kept for an action that waits for them",
		Edits: []Edit{{"fsm/members.go", "	x.s.PutNodeGroup(h)\n	x.reviewReservations(h.Members.List)\n", "	x.s.PutNodeGroup(h)\n"}},
		Hunt:  membersTest("fsm", "TestWhatBecomesPossibleIsLookedAt"),
	},
	{
		Name:  "member-back-for-anybody",
		Bug:   "a member that comes back while a turn has its group is left to actions",
		Edits: []Edit{{"fsm/members.go", "m.Lost == state.MemberThere && g.Taken() && !m.Withheld {", "m.Lost == state.MemberThere && g.Turn == 0 && g.Taken() && !m.Withheld {"}},
		Hunt:  membersTest("fsm", "TestMembersAreNeverGivenTwice"),
	},
	{
		Name:  "holder-is-not-told",
		Bug:   "the holder of a group does not learn that a member is lost",
		Edits: []Edit{{"fsm/members.go", "	if t := x.s.Turn(h.Turn); t != nil && news {", "	if t := x.s.Turn(h.Turn); t != nil && news && fresh && t.Stop {"}},
		Hunt:  membersTest("fsm", "TestMembersAreNeverGivenTwice"),
	},
	{
		Name:  "gap-open-when-a-member-returns",
		Bug:   "an action starts on a group in the entry in which a member came back that a turn waited for",
		Edits: []Edit{{"fsm/members.go", "		x.closeGap(id) // with that member", "		_ = id // with that member"}},
		Hunt:  membersTest("fsm", "TestTranscripts"),
	},
	{
		Name:  "actions-end-and-wake-no-turn",
		Bug:   "a turn that waits for actions on members is not looked at when they have ended",
		Edits: []Edit{{"fsm/members.go", "(m.Lost == state.MemberBusy || g.Members.Waits != state.NobodyWaits)", "m.Lost == state.MemberBusy"}},
		Hunt:  membersTest("fsm", "TestMembersAreNeverGivenTwice"),
	},
	{
		Name:  "overrun-not-counted",
		Bug:   "an action that still runs when a reservation begins is not counted",
		Edits: []Edit{{"fsm/members.go", "		h.Members.Overruns += x.actionsOn(&h, n)\n", "		_ = x.actionsOn(&h, n)\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "late-turn-not-counted",
		Bug:   "how long a turn waits for actions after its reservation has begun counts as if it had come early",
		Edits: []Edit{{"fsm/members.go", "	if m.Waits == state.DueWaits {\n", "	if m.Waits == state.EarlyWaits {\n"}},
		Hunt:  membersTest("fsm", "TestMembersAreNeverGivenTwice"),
	},
}

// membersTest hunts with a test of random cases or histories.
func membersTest(pkg, name string) Hunt {
	return Hunt{Engine: Tests, Args: []string{pkg, name}}
}
