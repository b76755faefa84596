package mutant

// quotas are bugs of limits on something outside. The simulation hunts them.
var quotas = []Mutant{
	{
		Name: "quota-returned-twice",
		Bug:  "stopping an action gives its units back at once, and again when it has ended",
		Edits: []Edit{
			{"fsm/transition.go",
				"	b.CancelReason = reason\n",
				"	b.CancelReason = reason\n	for i, key := range b.QuotaKeys {\n		use := b.Needs.Quotas[i]\n		x.changeUse(use.Quota, key, func(u *state.KeyUse) { u.Held -= use.Units })\n		x.wake(use.Quota)\n	}\n"},
			{"fsm/quota.go", "		u.Held -= use.Units\n", "		u.Held -= min(u.Held, use.Units)\n"},
		},
		Hunt: simulate(),
	},
	{
		Name:  "window-ends-with-the-call",
		Bug:   "units of a window come back as soon as the call has ended",
		Edits: []Edit{{"fsm/quota.go", "later := began && x.s.Quota(use.Quota).Windowed()", "later := began && false"}},
		Hunt:  simulate(),
	},
	{
		Name:  "window-forgotten-by-a-restore",
		Bug:   "units that were in a window when a snapshot was taken never come back on who restores it",
		Edits: []Edit{{"fsm/state/tables.go", "{ return &d.returns }, (*State).PutReturn)", "{ return &d.returns }, func(s *State, r *QuotaReturn) { db(s).returns.put(db(s).enc, r.ID, r) })"}},
		Hunt:  simulate(),
	},
	{
		Name:  "units-wake-nobody",
		Bug:   "units come back from a window, and those that wait for them are not looked at",
		Edits: []Edit{{"fsm/quota.go", "	x.s.DeleteReturn(id)\n	x.wake(id.Quota())\n", "	x.s.DeleteReturn(id)\n"}},
		Hunt:  simulate(),
	},
	{
		Name: "quota-exceeded-by-pooling",
		Bug:  "a call is granted when all keys together have enough units, though it uses only one of them",
		Edits: []Edit{
			{"sched/place/place.go",
				"	return key, most >= units\n",
				"	held, windowed, limit := q.Total()\n	return key, held+windowed+uint64(units) <= limit\n"},
			{"fsm/quota.go",
				"	state.Assert(key < q.Keys && q.Uses[key].InUse() <= q.Limit, \"quota %s: %d units of key %d are in use, the limit is %d\", q.Name, q.Uses[key].InUse(), key+1, q.Limit)\n",
				"	_ = q\n"},
		},
		Hunt: simulate(),
	},
	{
		Name:  "queue-with-units-in-hand",
		Bug:   "an action that is canceled while it waits for cores keeps its units in the window, as if it had called",
		Edits: []Edit{{"fsm/quota.go", "	began := a.State == state.ActionRunning\n", "	began := true\n"}},
		Hunt:  simulate(),
	},
	{
		Name: "throttle-ignored",
		Bug:  "that a provider refused calls is counted, and changes nothing",
		Edits: []Edit{{"fsm/state/pressure.go",
			"r.Adaptive && (fresh || retryNS > 0)",
			"false && (fresh || retryNS > 0)"}},
		Hunt: simulate(),
	},
	{
		Name: "limit-never-recovers",
		Bug:  "successful calls do not bring back what refused ones have taken",
		Edits: []Edit{{"fsm/state/pressure.go",
			"	p.Limit = min(whole, p.Limit+",
			"	p.Limit = min(p.Limit, p.Limit+"}},
		Hunt: simulate(),
	},
	{
		Name: "burst-halves-each-time",
		Bug:  "each of many calls that were refused at the same time halves the limit",
		Edits: []Edit{{"fsm/state/pressure.go",
			"fresh := began >= p.PausedUntil; r.Adaptive",
			"fresh := now >= began; r.Adaptive"}},
		Hunt: simulate(),
	},
	{
		Name: "pause-wakes-nobody",
		Bug:  "a pause ends, and those that wait for the quota are not looked at",
		Edits: []Edit{{"fsm/throttle.go",
			"	x.s.PutQuota(q.Rested(x.now()))\n	x.wake(q.ID)\n",
			"	x.s.PutQuota(q.Rested(x.now()))\n"}},
		Hunt: simulate(),
	},
	{
		Name: "large-call-waits-for-ever",
		Bug:  "an action that asks for more than may be in use is not served even when nothing else is in use",
		Edits: []Edit{{"fsm/state/pressure.go",
			"		most = max(most, min(units, r.Limit))\n",
			"		most = max(most, 0)\n"}},
		Hunt: simulate(),
	},
}
