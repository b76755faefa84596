package mutant

// servers are bugs of the servers around the state machine: of replication, of
// what is durable, and of what is told to clients. Real processes are hunted.
var servers = []Mutant{
	{
		Name: "stale-read-of-a-deposed-leader",
		Bug:  "a leader answers reads without asking whether it still leads",
		Edits: []Edit{{"server/replica/read.go",
			"return index, lead.verify.verify(ctx)",
			"return index, nil"}},
		Hunt: run("deposed-leaders"),
	},
	{
		Name: "stale-read-of-a-follower",
		Bug:  "a follower answers linearizable reads from what it has heard so far",
		Edits: []Edit{{"server/replica/read.go",
			"index, err = r.readers.read(ctx, r.closed)",
			"index, err = r.commandAt(r.raft.CommitIndex())"}},
		Hunt: run("partitions"),
	},
	{
		Name: "log-time-twice-as-fast",
		Bug:  "log time passes faster than the leader's clock, so that windows of quotas end too early",
		Edits: []Edit{{"server/replica/clock.go",
			"	t := c.anchor + int64(c.now().Sub(c.since))\n",
			"	t := c.anchor + 2*int64(c.now().Sub(c.since))\n"}},
		Hunt: run("resources"),
	},
	{
		Name: "report-acknowledged-before-commit",
		Bug:  "an agent's report is answered when it has been proposed, and may be lost",
		Edits: []Edit{{"server/rpc/agents.go",
			"		Node: req.Name, Incarnation: req.Incarnation, Reports: reports,\n	}}})\n	if err != nil {\n		return nil, err\n	}\n",
			"		Node: req.Name, Incarnation: req.Incarnation, Reports: reports,\n	}}})\n	if err != nil {\n		return &rotav1.ReportAttemptsResponse{Index: 1 << 60}, nil\n	}\n"}},
		Hunt: run("leader-kill", "--count", "4"),
	},
	{
		Name: "heartbeat-fast-path",
		Bug:  "heartbeats change the term under a running leader loop (hashicorp/raft issue 695)",
		Edits: []Edit{
			{"server/replica/transport.go", "	if t.fastHeartbeats {\n", "	{\n"},
		},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestHeartbeatsDoNotBypassRaft"}},
	},
	{
		Name: "vote-in-two-writes",
		Bug:  "the term of a vote is durable before its candidate is (hashicorp/raft issue 661)",
		Edits: []Edit{{"server/replica/stable.go",
			"		failpoint.Hit(failpoint.VoteSplit)\n		return nil\n",
			"		failpoint.Hit(failpoint.VoteSplit)\n		next := s.current\n		next.voteTerm = val\n		return s.commit(next)\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestVoteIsOneRecord"}},
	},
	{
		Name: "fsync-skipped",
		Bug:  "the log is written and not flushed",
		Edits: []Edit{{"server/replica/open.go",
			"		Path: path,\n		BoltOptions: &bbolt.Options{\n			NoFreelistSync: true,\n",
			"		Path:   path,\n		NoSync: true,\n		BoltOptions: &bbolt.Options{\n			NoFreelistSync: true,\n"}},
		Hunt: run("power-losses", "--count", "4"),
	},
	{
		Name: "write-error-ignored",
		Bug:  "a server goes on after a write or a flush has failed",
		Edits: []Edit{{"server/replica/guard.go",
			"			err = fmt.Errorf(\"%w: %s: %w\", ErrWriteFailed, what, err)\n			g.fatal(err)\n			return\n",
			"			err = nil\n			return\n"}},
		Hunt: run("disk"),
	},
	{
		Name: "checksum-ignored",
		Bug:  "an entry is believed though its checksum is wrong",
		Edits: []Edit{{"server/replica/logstore.go",
			"if n < 0 || l.Index != index || entryCRC(l, l.Extensions[:n]) != binary.LittleEndian.Uint32(l.Extensions[n:]) {",
			"if n < 0 {"}},
		Hunt: run("rot"),
	},
	{
		Name: "mark-ignored",
		Bug:  "a server votes though its log is shorter than it once was",
		Edits: []Edit{
			{"server/replica/open.go", "	case damaged && s.marked != markState{}:\n", "	case damaged && s.marked == markState{}:\n"},
			{"server/replica/open.go", "last < s.marked.index {", "last < s.marked.index && last == 0 {"},
		},
		// A run with real processes does not notice: who leads after all brings its log
		// up to date first, unless just the servers that have it are away.
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestQuarantine"}},
	},
	{
		Name: "watch-that-skips",
		Bug:  "a watch drops an event at the end of a message",
		Edits: []Edit{{"server/rpc/watch.go",
			"		more = w.position < newest\n",
			"		if more = w.position < newest; more {\n			w.position++\n		}\n"}},
		Hunt: run("leader-kill", "--count", "4"),
	},
	{
		Name: "watch-that-repeats",
		Bug:  "a watch that is resumed begins with the event that was seen last",
		Edits: []Edit{{"server/rpc/watch.go",
			"position:   req.GetAfterRevision(),",
			"position:   max(req.GetAfterRevision(), 1) - 1,"}},
		Hunt: run("leader-kill", "--count", "4"),
	},
}

// run hunts with real processes of the mutant.
func run(scenario string, args ...string) Hunt {
	return Hunt{Engine: Processes, Args: append([]string{scenario}, args...)}
}
