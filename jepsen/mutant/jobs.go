package mutant

// jobs are bugs of the ledger, of training jobs and their turns. The simulation hunts
// most of them: its trainers lose their leases, die, come late and go back a step.
var jobs = []Mutant{
	{
		Name:  "token-of-a-resident",
		Bug:   "a turn whose deployment is on the group already gets the token of the turn before it",
		Edits: []Edit{{"fsm/turn.go", "	m.LastToken++\n", "	if g.Resident != t.Deployment {\n		m.LastToken++\n	}\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "turn-ended-without-its-token",
		Bug:   "who gives up a turn that waits ends it also if it has been granted meanwhile",
		Edits: []Edit{{"fsm/turn.go", "	case t.Token != c.Token:\n", "	case t.Token != c.Token && c.Token != 0:\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "early-turn-overruns",
		Bug:   "a turn is granted early although it ends after the next reservation has begun",
		Edits: []Edit{{"sched/turn.go", "return end <= r.Start*p.slot", "return end <= r.End*p.slot"}},
		Hunt:  simulate(),
	},
	{
		Name: "newest-of-a-deployment-first",
		Bug:  "of several turns of a deployment the newest is granted first",
		Edits: []Edit{{"sched/turn.go",
			"				p.heads = append(p.heads, t)\n",
			"				p.view.JobTurns(j.ID, func(u *state.Turn) bool {\n" +
				"					if u.Deployment == t.Deployment && u.State == state.TurnWaiting {\n						t = u\n					}\n" +
				"					return true\n				})\n				p.heads = append(p.heads, t)\n"}},
		Hunt: simulate(),
	},
	{
		Name:  "job-holds-two-groups",
		Bug:   "a job that still holds a turn on the group that it left is granted another",
		Edits: []Edit{{"sched/turn.go", "if held != nil && held.ID != p.group.Turn || ", "if held != nil && held.ID == 0 || "}},
		Hunt:  simulate(),
	},
	{
		Name:  "turn-outlives-its-job",
		Bug:   "turns that wait go on waiting when their job is completed",
		Edits: []Edit{{"fsm/job.go", "		x.cancelWaiting(k.ID)\n", ""}},
		Hunt:  simulate(),
	},
	{
		Name:  "lost-holder-is-resident",
		Bug:   "after a holder was lost its deployment is taken to be on the group still",
		Edits: []Edit{{"fsm/turn.go", "	if c.Reason != endYielded {\n		g.Resident = 0\n	}\n", ""}},
		Hunt:  simulate(),
	},
	{
		Name: "yield-wakes-nobody",
		Bug:  "a group is free again, and those that wait for it are not looked at",
		Edits: []Edit{
			{"fsm/turn.go", "	x.s.PutNodeGroup(&g)\n	x.dirty.add(state.QueueOf(state.TurnQueue, g.ID))\n", "	x.s.PutNodeGroup(&g)\n"},
			{"fsm/turn.go", "	if j.Group != 0 { // the next of its deployment comes up\n		x.closeGap(j.Group)\n		x.dirty.add(state.QueueOf(state.TurnQueue, j.Group))\n	}\n", ""},
		},
		Hunt: simulate(),
	},
	{
		Name:  "group-not-looked-at-again",
		Bug:   "nobody looks again at those that wait for a reservation to begin",
		Edits: []Edit{{"fsm/nodegroup.go", "x.wakeGroupAt(x.s.NodeGroup(id), d.WakeAt)", "x.wakeGroupAt(x.s.NodeGroup(id), 0)"}},
		Hunt:  simulate(),
	},
	{
		Name:  "limit-not-kept",
		Bug:   "who holds a group for longer than it said is not asked to stop",
		Edits: []Edit{{"fsm/state/ledger_store.go", "	case r.State == TurnHeld && r.LimitNS > 0 && !r.Stop:\n", "	case r.State == TurnHeld && r.LimitNS < 0 && !r.Stop:\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "reservation-returned-by-half",
		Bug:   "the reservation of a job that leaves is forgotten, and its group keeps the period",
		Edits: []Edit{{"fsm/placement.go", "	x.s.DeleteReservation(j.ID)\n	x.putReservations(l, j.Group)\n", "	x.s.DeleteReservation(j.ID)\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "suspended-job-keeps-its-reservation",
		Bug:   "what is reserved for a job stays so while it is suspended",
		Edits: []Edit{{"fsm/job.go", "		x.giveReservationBack(j)\n", "		if s != state.JobSuspended {\n			x.giveReservationBack(j)\n		}\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "reservation-returned-and-nobody-placed",
		Bug:   "jobs that wait for a group are not looked at when a reservation comes back",
		Edits: []Edit{{"fsm/placement.go", "	x.s.DeleteReservation(j.ID)\n	x.putReservations(l, j.Group)\n	x.placeAgain()\n", "	x.s.DeleteReservation(j.ID)\n	x.putReservations(l, j.Group)\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "restart-finishes-a-cycle",
		Bug:   "a training that goes back a step is taken to have finished one",
		Edits: []Edit{{"fsm/turn.go", "if j.Step > 0 && step > j.Step {", "if j.Step > 0 && step != j.Step {"}},
		Hunt:  simulate(),
	},
	{
		Name:  "stopped-holder-renewed",
		Bug:   "a holder that was asked to stop and does not is renewed for ever",
		Edits: []Edit{{"server/lease/turns.go", "if row.Stop && now.Sub(lease.stopped) > grace {", "if row.Stop && now.Sub(lease.stopped) > 1000*grace {"}},
		Hunt:  simulate(),
	},
	{
		Name: "turn-renewed-by-a-deposed-leader",
		Bug:  "a leader renews leases of turns without asking whether it still leads",
		Edits: []Edit{{"server/lease/turns.go",
			"	if err := verify(); err != nil {\n		return nil, err\n	}\n",
			""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/lease", "TestDeposedLeaderCannotRenewTurns"}},
	},
	{
		Name: "granted-while-hooks-run",
		Bug:  "a group whose holder was lost while hooks ran is given to the next at once",
		Edits: []Edit{
			{"sched/turn.go", "		holder == nil && g.ContextSwitch != nil, // hooks of a turn that is over still run\n", ""},
			{"fsm/turn.go", "g.Turn == 0 && g.ContextSwitch == nil && t.State", "g.Turn == 0 && t.State"},
			{"fsm/state/check_ledger.go", "|| g.Turn != 0 && t.Token != g.ContextSwitch.Token)", ")"},
		},
		Hunt: simulate(),
	},
	{
		Name: "held-before-it-is-ready",
		Bug:  "a turn is shown as held while the hooks of its group still run",
		Edits: []Edit{{"fsm/state/ledger_store.go",
			"	return t.State == TurnHeld && g.ContextSwitch != nil && g.ContextSwitch.Token == t.Token\n",
			"	return t.State == TurnHeld && g.ContextSwitch != nil && g.ContextSwitch.Token == t.Token && len(g.ContextSwitch.Hooks) > 1\n"}},
		Hunt: simulate(),
	},
	{
		Name:  "hook-not-awaited",
		Bug:   "a leader takes a hook for ended that still runs",
		Edits: []Edit{{"server/leader/contextswitch.go", "		case !over:\n", "		case !over && n < 0:\n"}},
		Hunt:  simulate(),
	},
	{
		Name: "hook-left-out",
		Bug:  "a leader says that a group is ready after the first of its hooks",
		Edits: []Edit{{"server/leader/contextswitch.go",
			"	if key.number == len(g.ContextSwitch.Hooks) {\n",
			"	if key.number > 0 || key.number == len(g.ContextSwitch.Hooks) {\n"}},
		Hunt: simulate(),
	},
	{
		Name:  "awake-forgotten",
		Bug:   "a deployment that could not be put to sleep is not tried again",
		Edits: []Edit{{"fsm/hook.go", "		h.Halted = c.Message\n", "		h.Halted, h.Awake = c.Message, 0\n"}},
		Hunt:  simulate(),
	},
	{
		Name:  "turn-given-up-early",
		Bug:   "the leader gives a turn up while its holder may still count on its lease",
		Edits: []Edit{{"server/lease/table.go", "if over = silent > r.patience; over {", "if over = silent > r.patience || who.turn != 0 && silent > r.patience/3; over {"}},
		Hunt:  run("leader-kill", "--count", "8").by("turns"),
	},
	{
		Name:  "lease-of-a-turn-from-a-repetition",
		Bug:   "who asks for a turn again counts its lease from then, though it was granted before",
		Edits: []Edit{{"api/client/turn.go", "	if !resp.Replayed {", "	if h.hold.until.Load() == 0 {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"api/client", "TestATurnThatWasGrantedBeforeIsRenewedFirst"}},
	},
}
