package mutant

import "time"

// stateMachine are bugs of the state machine and the scheduler. The simulation
// hunts them.
var stateMachine = []Mutant{
	{
		Name: "missing-fence",
		Bug:  "a report is believed whatever attempt and incarnation it is of",
		Edits: []Edit{{"fsm/report.go",
			"if t == nil || t.Number != r.Attempt || t.Incarnation != c.Incarnation {",
			"if t == nil {"}},
		Hunt: simulate(),
	},
	{
		Name: "expiry-without-incarnation",
		Bug:  "a node that has come back is given up because of its earlier life",
		Edits: []Edit{{"fsm/node.go",
			"if n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp {",
			"if n == nil || n.State != state.NodeUp {"}},
		Hunt: simulate(),
	},
	{
		Name: "cores-returned-twice",
		Bug:  "stopping an action frees its cores at once, and again when it has ended",
		Edits: []Edit{
			{"fsm/transition.go",
				"	x.s.PutAttempt(&t)\n	x.dirtyNodes.add(a.Node)\n",
				"	x.s.PutAttempt(&t)\n	x.dirtyNodes.add(a.Node)\n	n := *x.s.Node(a.Node)\n	n.Free = n.Free.Union(t.Cores)\n	x.s.PutNode(&n)\n	x.dirty.add(state.NodeInstance(n.ID))\n"},
			{"fsm/transition.go",
				"	state.Assert(n.Free.Intersect(t.Cores) == state.CoreSet{}, \"cores of action %d on node %s are free already\", t.Action, n.Name)\n",
				""},
		},
		Hunt: simulate(),
	},
	{
		Name: "lost-always-again",
		Bug:  "an action whose attempt was lost runs again, also if it may run only once",
		Edits: []Edit{{"fsm/transition.go",
			"case a.Attempt < a.AttemptsMax && !ending:",
			"case !ending:"}},
		Hunt: simulate(),
	},
	{
		Name: "map-iteration",
		Bug:  "queues are scheduled in the order of a map, which differs from server to server",
		Edits: []Edit{{"fsm/apply.go",
			"	item, s.items = s.items[0], s.items[1:]\n	delete(s.known, item)\n	return item, true\n",
			"	for item = range s.known {\n		break\n	}\n	for i, v := range s.items {\n		if v == item {\n			s.items = append(s.items[:i:i], s.items[i+1:]...)\n			break\n		}\n	}\n	delete(s.known, item)\n	return item, true\n"}},
		Hunt: simulate(),
	},
	{
		Name:  "unclamped-time",
		Bug:   "log time goes back when the clock of a new leader is behind",
		Edits: []Edit{{"fsm/apply.go", "m.Now = max(m.Now, ns)", "m.Now = ns"}},
		Hunt:  simulate(),
	},
	{
		Name: "snapshot-without-requests",
		Bug:  "a snapshot lacks the table of request IDs, and its hash is made to fit",
		Edits: []Edit{
			{"fsm/state/snapshot.go", "	saveTable(out, &s.requests)\n", ""},
			{"fsm/state/snapshot.go", "out.finish(s.Hash())", "out.finish(s.Hash() - s.requests.hash)"},
		},
		Hunt: simulate(),
	},
	{
		Name: "request-forgotten-early",
		Bug:  "a request ID is forgotten before it expires",
		Edits: []Edit{{"fsm/request.go",
			"&state.Request{ID: q.Id, Expires: expires,",
			"&state.Request{ID: q.Id, Expires: x.now() + (expires-x.now())/4,"}},
		Hunt: simulate(),
	},
	{
		Name: "request-id-for-anything",
		Bug:  "a request ID is answered with the result of another request",
		Edits: []Edit{{"fsm/request.go",
			"if old.Verb != verb || old.Count != count || old.Digest != q.Digest {",
			"if old.Verb != verb {"}},
		Hunt: simulate(),
	},
	{
		Name: "expired-request-accepted",
		Bug:  "a request that comes after its expiry is carried out, again if need be",
		Edits: []Edit{{"fsm/request.go",
			"if q.ExpireNs != 0 && q.ExpireNs <= x.now() {",
			"if q.ExpireNs != 0 && q.ExpireNs <= 0 {"}},
		Hunt: simulate(),
	},
	{
		Name: "bypass-without-bound",
		Bug:  "an action that does not fit is passed by for ever",
		Edits: []Edit{{"sched/order/queue.go",
			"return a.Bypassed == 0 || (a.Bypassed < s.BypassMax && now-a.BlockedAt < s.BypassNSMax)",
			"return a.Bypassed == 0 || s.BypassMax > 0 || now < a.BlockedAt"}},
		Hunt: simulate(),
	},
	{
		Name: "starts-while-draining",
		Bug:  "a node that is drained goes on to take actions from the pool",
		Edits: []Edit{{"sched/sched.go",
			"		if !n.Draining {\n			p.queues =",
			"		if n.State == state.NodeUp {\n			p.queues ="}},
		Hunt: simulate(),
	},
	{
		Name: "memory-leak",
		Bug:  "a lost trajectory does not give its memory back",
		Edits: []Edit{{"fsm/trajectory.go",
			"		m.FreeMemory += t.Memory\n",
			"		if t.EndReason != state.EndNodeLost {\n			m.FreeMemory += t.Memory\n		}\n"}},
		Hunt: simulate(),
	},
	{
		Name: "forgotten-work",
		Bug:  "a queue that gets cores back is not looked at",
		Edits: []Edit{{"fsm/transition.go",
			"	x.dirtyNodes.add(n.ID)\n	x.nodeFreed(&n)\n	if t.Reserved > 0 {",
			"	x.dirtyNodes.add(n.ID)\n	if t.Reserved > 0 {"}},
		Hunt: simulate(),
	},
	{
		Name: "half-rolled-back",
		Bug:  "what a panicking decision had written stays",
		Edits: []Edit{
			{"fsm/apply.go", "	for tries := 0; ; tries++ {\n", "	kept := s.Copy()\n	for tries := 0; ; tries++ {\n"},
			{"fsm/apply.go", "x := &execution{s: s.Copy(), index: index,", "x := &execution{s: kept, index: index,"},
		},
		Hunt: simulate(),
	},
	{
		Name: "journal-ignored",
		Bug:  "an agent that has lost its journal keeps its incarnation",
		Edits: []Edit{{"fsm/node.go",
			"return a.JournalID == b.JournalID && a.Pool == b.Pool",
			"return a.Pool == b.Pool"},
			{"fsm/node.go",
				"if old.State == state.NodeUp && old.JournalID != c.JournalId {",
				"if old.State == state.NodeUp && old.JournalID == \"\" {"}},
		Hunt: simulate(),
	},
	{
		Name: "cancel-forgotten",
		Bug:  "an action whose cancellation was under way when its node was lost runs again",
		Edits: []Edit{{"fsm/transition.go",
			"	case a.CancelReason != 0:\n		r.Reason = a.CancelReason\n		x.end(a, state.ActionCanceled, r)\n	case a.Attempt <",
			"	case a.Attempt <"}},
		Hunt: simulate(),
	},
	{
		Name: "newest-scheduler",
		Bug:  "a server decides by the newest version of the scheduler that it knows, not by the active one",
		Edits: []Edit{{"fsm/schedule.go",
			"return k[s.Meta().SchedulerVersion-1]",
			"return k[len(k)-1]"}},
		Hunt: simulate(),
	},
	{
		Name: "old-scheduler",
		Bug:  "a server goes on to decide by an old version of the scheduler when a newer one is active",
		Edits: []Edit{{"fsm/schedule.go",
			"return k[s.Meta().SchedulerVersion-1]",
			"return k[0]"}},
		Hunt: simulate(),
	},
	{
		Name: "scheduler-of-the-build",
		Bug:  "a bootstrap activates what the build of each server knows, not what its entry says",
		Edits: []Edit{{"fsm/admin.go",
			"m.SchedulerVersion = max(1, c.SchedulerVersion)",
			"m.SchedulerVersion = uint32(len(x.schedulers))"}},
		Hunt: simulate(),
	},
	{
		Name: "snapshot-of-an-unknown-scheduler",
		Bug:  "a server takes a snapshot of a version of the scheduler that it does not know, and decides on by its own",
		Edits: []Edit{
			{"fsm/machine.go", "	if err := schedulers(m.opts.Schedulers).check(s.Meta().SchedulerVersion); err != nil {\n", "	if err := schedulers(m.opts.Schedulers).check(1); err != nil {\n"},
			{"fsm/schedule.go", "return k[s.Meta().SchedulerVersion-1]", "return k[min(len(k), int(s.Meta().SchedulerVersion))-1]"},
		},
		Hunt: simulate(),
	},
	{
		Name: "learned-from-failures",
		Bug:  "a class learns from attempts that failed, too",
		Edits: []Edit{{"fsm/class.go",
			"if a.Class == 0 || r.Reason != state.EndExited || r.ExitCode != 0 {",
			"if a.Class == 0 {"}},
		Hunt: simulate(),
	},
	{
		Name: "width-between",
		Bug:  "an action that can use some numbers of cores only gets one between them",
		Edits: []Edit{{"sched/elastic.go",
			"return p.explore(a, amounts, amounts.AtMost(has+free), has+free)",
			"return p.explore(a, amounts, min(int(amounts.Most()), has+free), has+free)"}},
		Hunt: simulate(),
	},
	{
		Name: "evicted-for-ever",
		Bug:  "an elastic action that is the only one to start waits for more cores, though nothing runs that could free them",
		Edits: []Edit{{"sched/elastic.go",
			"	widths := m.elastic.Decide(g)\n",
			"	widths := m.elastic.Decide(g)\n	if len(widths) == 1 && g.Must == 0 {\n		widths = nil\n	}\n"}},
		Hunt: simulate(),
	},
	{
		Name: "snapshot-without-classes",
		Bug:  "a snapshot lacks what was learned, and its hash is made to fit",
		Edits: []Edit{
			{"fsm/state/snapshot.go", "	saveTable(out, &s.classes)\n", ""},
			{"fsm/state/snapshot.go", "out.finish(s.Hash())", "out.finish(s.Hash() - s.classes.hash)"},
		},
		Hunt: simulate(),
	},
}

// gpus are bugs of chunks of GPUs, of what is resident on them, and of bandwidth.
var gpus = []Mutant{
	{
		Name:  "bandwidth-not-returned",
		Bug:   "an attempt that ends keeps its share of the network's bandwidth",
		Edits: []Edit{{"fsm/transition.go", "	n.FreeBandwidth += t.Bandwidth\n", ""}},
		Hunt:  simulate(),
	},
	{
		Name: "bandwidth-promised-twice",
		Bug:  "an attempt does not take its share of the network's bandwidth",
		Edits: []Edit{{"fsm/transition.go",
			"	m.FreeBandwidth -= a.Bandwidth()\n",
			""}},
		Hunt: simulate(),
	},
	{
		Name: "gpus-half-held",
		Bug:  "of the GPUs of a chunk only the first half is taken",
		Edits: []Edit{{"fsm/gpu.go",
			"	n.GPUs.Free &^= c.GPUs()\n",
			"	n.GPUs.Free &^= state.Chunk{First: c.First, Units: (c.Units + 1) / 2}.GPUs()\n"}},
		Hunt: simulate(),
	},
	{
		Name: "unaligned-chunk",
		Bug:  "a chunk begins wherever enough GPUs in a row are free",
		Edits: []Edit{
			{"sched/gpuview.go",
				"	return n, g, true\n",
				"	for first := uint32(0); first+g.Chunk.Units <= n.GPUs.Count && len(g.Evict) == 0 && !g.Hit; first++ {\n		if c := (state.Chunk{First: first, Units: g.Chunk.Units}); c.GPUs()&^n.GPUs.Free == 0 {\n			g.Chunk = c\n			break\n		}\n	}\n	return n, g, true\n"},
			{"fsm/gpu.go", "state.Assert(c.Aligned(n.GPUs.Count) && c.GPUs()", "state.Assert(c.GPUs()"},
		},
		Hunt: simulate(),
	},
	{
		Name: "resident-after-loss",
		Bug:  "a machine that comes back is believed to have the models in its GPUs that it had before",
		Edits: []Edit{
			{"fsm/node.go", "	x.s.DeleteResidency(row.ID)\n", ""},
			{"fsm/node.go", "	x.s.DeleteResidency(n.ID)\n", ""},
		},
		Hunt: simulate(),
	},
	{
		Name: "evicted-and-still-there",
		Bug:  "a model that was evicted is still believed to be resident",
		Edits: []Edit{{"fsm/gpu.go",
			"			evicted++\n",
			"			evicted++\n			kept.Models = append(kept.Models, m)\n"}},
		Hunt: simulate(),
	},
}

// simulate hunts with the simulation, as many seeds as it takes.
func simulate(args ...string) Hunt {
	return Hunt{Engine: Simulation, Args: args, Within: 3 * time.Minute}
}
