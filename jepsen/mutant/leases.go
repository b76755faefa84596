package mutant

// leases are bugs of the rules that keep an execution on one machine. The
// simulation runs these very rules, and loses agents for longer than a lease.
var leases = []Mutant{
	{
		Name: "lease-without-margin",
		Bug:  "the servers give a node up while its agent may still count on its lease",
		Edits: []Edit{{"server/lease/table.go",
			"s.Meta().Settings.LeaseNS + s.Meta().Settings.LeaseMarginNS",
			"s.Meta().Settings.LeaseNS - 2*s.Meta().Settings.LeaseMarginNS"}},
		Hunt: partitions(),
	},
	{
		Name: "lease-beyond-its-end",
		Bug:  "an agent adds the margin to its lease instead of taking it off",
		Edits: []Edit{{"agent/plan/lease.go",
			"sent+l.duration-l.margin",
			"sent+l.duration+2*l.margin"}},
		Hunt: partitions(),
	},
	{
		Name: "lease-from-the-answer",
		Bug:  "an agent counts its lease from the answer, however long that took",
		Edits: []Edit{
			{"agent/plan/lease.go",
				"l.deadline = max(l.deadline, sent+l.duration-l.margin)",
				"l.deadline = max(l.deadline, now+l.duration-l.margin)"},
			{"agent/plan/session.go", "if number != s.renewal || s.stage != open {", "if s.stage != open {"},
		},
		Hunt: partitions(),
	},
	{
		Name: "lease-renewed-by-a-deposed-leader",
		Bug:  "a leader renews leases without asking whether it still leads",
		Edits: []Edit{{"server/lease/table.go",
			"	if err := verify(); err != nil {\n		return nil, err\n	}\n",
			""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/lease", "TestDeposedLeaderCannotRenew"}},
	},
	{
		Name: "new-leader-remembers",
		Bug:  "a server that leads again counts leases from what it knew when it led before",
		Edits: []Edit{
			{"server/lease/table.go", "	t.leases = map[subject]held{}\n", "	if t.leases == nil {\n		t.leases = map[subject]held{}\n	}\n"},
			{"server/lease/table.go", "	t.leases = nil\n", ""},
		},
		Hunt: partitions(),
	},
	{
		Name: "new-leader-gives-up-at-once",
		Bug:  "a new leader takes a node that it has not heard yet for one that is silent",
		Edits: []Edit{{"server/lease/table.go",
			"if !known || lease.number != number {",
			"if known && lease.number != number {"}},
		Hunt: partitions(),
	},
	{
		Name: "renewed-while-given-up",
		Bug:  "a renewal is answered while the end of the node is being committed",
		Edits: []Edit{{"server/lease/table.go",
			"case lease.expiring && lease.number == n.Incarnation:",
			"case lease.expiring && lease.number == 0:"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/lease", "TestNoRenewalOnceExpiryBegan"}},
	},
}

// partitions hunts with a simulation in which agents are lost for longer than
// their leases.
func partitions() Hunt { return simulate("--scenario", "partitions") }
