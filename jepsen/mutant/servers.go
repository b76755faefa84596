package mutant

import "time"

// servers are bugs of the servers around the state machine: of replication, of
// what is durable, and of what is told to clients. Real processes are hunted.
var servers = []Mutant{
	{
		Name: "stale-read-of-a-deposed-leader",
		Bug:  "a leader answers reads without asking whether it still leads",
		Edits: []Edit{{"server/replica/read.go",
			"return lead.verify.verify(ctx, index)",
			"return index, nil"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestALeaderThatNobodyConfirmsAnswersNoRead"}},
	},
	{
		Name: "stale-read-of-a-follower",
		Bug:  "a follower answers linearizable reads from what it has heard so far",
		Edits: []Edit{{"server/replica/read.go",
			"index, err = r.readers.read(ctx, r.closed)",
			"index, err = r.commandAt(r.raft.CommitIndex())"}},
		Hunt: run("partitions").by("linearizable"),
	},
	{
		Name: "log-time-twice-as-fast",
		Bug:  "log time passes faster than the leader's clock, so that windows of quotas end too early",
		Edits: []Edit{{"server/entry/form.go",
			"	t := s.anchor + m.Elapsed\n",
			"	t := s.anchor + 2*m.Elapsed\n"}},
		Hunt: run("resources").by("windows"),
	},
	{
		Name: "report-acknowledged-before-commit",
		Bug:  "an agent's report is answered when it has been proposed, and may be lost",
		Edits: []Edit{{"server/rpc/agents.go",
			"			return nil, err // who tries again may repeat what has been committed\n",
			"			return &rotav1.ReportAttemptsResponse{Index: 1 << 60}, nil\n"}},
		Hunt: run("leader-kill", "--count", "4").by("at-most-one", "nothing-lost", "recovery"),
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
		Bug:  "the log of raft-boltdb is written and not flushed",
		Edits: []Edit{{"server/replica/open.go",
			"		Path: path,\n		BoltOptions: &bbolt.Options{\n			NoFreelistSync: true,\n",
			"		Path:   path,\n		NoSync: true,\n		BoltOptions: &bbolt.Options{\n			NoFreelistSync: true,\n"}},
		Hunt: run("power-losses", "--count", "4", "--log-store", "boltdb").by("nothing-lost", "logs", "hashes", "replay", "linearizable", "watch", "recovery"),
	},
	{
		Name: "segment-list-unchecked",
		Bug:  "the list of the log's files is believed though its checksum is wrong",
		Edits: []Edit{{"server/replica/wallist.go",
			"		crc32.Checksum(text[segmentListHead:], castagnoli) != binary.LittleEndian.Uint32(text[len(segmentListMagic):]) {\n",
			"		crc32.Checksum(text[segmentListHead:], castagnoli) == 0 && binary.LittleEndian.Uint32(text[len(segmentListMagic):]) != 0 {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestDamageOfTheWAL"}},
	},
	{
		Name: "torn-append-kept",
		Bug:  "what a crash has left behind the newest append stays, for a later append to run into",
		Edits: []Edit{{"server/replica/wallist.go",
			"	if to > from {\n", "	if to < 0 {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestATornAppendIsCleared"}},
	},
	{
		Name: "conversion-in-place",
		Bug:  "a conversion of the log writes to the folder itself, so a crash leaves a part of the log that counts as all of it",
		Edits: []Edit{
			{"server/replica/convert.go", "	fresh := o.path(walFresh)\n", "	fresh := o.path(walName)\n"},
			{"server/replica/convert.go", "	return o.rename(walFresh, walName)\n", "	return nil\n"},
		},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestACrashWhileTheLogIsConverted"}},
	},
	{
		Name: "write-error-ignored",
		Bug:  "a server goes on after a write or a flush has failed",
		Edits: []Edit{{"server/replica/guard.go",
			"			err = fmt.Errorf(\"%w: %s: %w\", ErrWriteFailed, what, err)\n			g.fatal(err)\n			return\n",
			"			err = nil\n			return\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestAFailingDiskEndsTheWriter"}, Within: 6 * time.Minute},
	},
	{
		Name: "checksum-ignored",
		Bug:  "an entry is believed though its checksum is wrong",
		Edits: []Edit{{"server/replica/logstore.go",
			"if n < 0 || l.Index != index || entryCRC(l, l.Extensions[:n]) != binary.LittleEndian.Uint32(l.Extensions[n:]) {",
			"if n < 0 {"}},
		Hunt: run("rot").by("nothing-lost", "logs", "hashes", "replay", "linearizable", "watch"),
	},
	{
		Name: "mark-ignored",
		Bug:  "a server votes though its log is shorter than it once was",
		Edits: []Edit{
			{"server/replica/open.go", "	case damaged && s.marked != markState{}:\n", "	case damaged && s.marked == markState{}:\n"},
			{"server/replica/open.go", "	case last < s.marked.index:\n", "	case last < s.marked.index && last == 0:\n"},
		},
		// A run with real processes does not notice: who leads after all brings its log
		// up to date first, unless just the servers that have it are away.
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestQuarantine"}},
	},
	{
		Name: "empty-disk-votes",
		Bug:  "a server that has lost its disk votes before it has caught up",
		Edits: []Edit{{"server/replica/quarantine.go",
			"			if !r.caughtUp() {\n", "			if !r.caughtUp() && !(r.store.pristine && len(r.cfg.Bootstrap) == 0) {\n"}},
		Hunt: run("wiped-disks", "--count", "4").by("nothing-lost", "logs", "hashes", "replay", "linearizable", "watch", "leaders"),
	},
	{
		Name: "founds-without-asking",
		Bug:  "a server that is told to found a cluster asks nobody whether there is one",
		Edits: []Edit{{"server/replica/found.go",
			"		exists, missing := r.inquireOnce()\n", "		exists, missing := \"\", []string(nil)\n"}},
		Hunt: run("wiped-disks", "--count", "4").by("nothing-lost", "logs", "hashes", "replay", "linearizable", "watch", "leaders", "members"),
	},
	{
		Name: "clients-operate",
		Bug:  "one of the calls that are for operators is open to clients",
		Edits: []Edit{{"server/rpc/rights.go",
			"OperatorServiceCreateNamespaceProcedure:    {noun: \"namespace\", verb: rights.Operate,",
			"OperatorServiceCreateNamespaceProcedure:    {noun: \"namespace\", verb: rights.Submit,"}},
		Hunt: run("abuse").by("abuse"),
	},
	{
		Name: "agents-speak-for-others",
		Bug:  "an agent may speak for any node, so one that was broken into ends the work of others",
		Edits: []Edit{{"server/rpc/agents.go",
			"	if err := s.checkNode(ctx, req.Name); err != nil {\n		return nil, err\n	}\n	resp := &rotav1.ReportAttemptsResponse{}",
			"	resp := &rotav1.ReportAttemptsResponse{}"}},
		Hunt: run("abuse").by("abuse"),
	},
	{
		Name: "vote-in-quarantine",
		Bug:  "a server gets a vote before its quarantine is over, and cannot use it",
		Edits: []Edit{{"server/replica/admit.go",
			"	case is.Quarantine != \"\":\n", "	case is.Quarantine != \"\" && is.LastIndex == 0:\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestAVoteWaitsForTheEndOfQuarantine"}},
	},
	{
		Name: "voter-beside-a-dead-one",
		Bug:  "a voter is added while another does not answer",
		Edits: []Edit{{"server/replica/admit.go",
			"len(absent) > 0 {", "len(absent) > 1 {"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestNoVoterIsAddedWhileAnotherIsAway"}},
	},
	{
		Name: "late-ticket",
		Bug:  "a follower's answer confirms the leader for questions that were asked after its message was sent",
		Edits: []Edit{{"server/quorum/leadership.go",
			"max(l.acked[from], sent)", "max(l.acked[from], l.drawn)"}},
		Hunt: simulate(),
	},
	{
		Name: "read-without-a-majority",
		Bug:  "a leader takes one answer less than a majority for a confirmation",
		Edits: []Edit{{"server/quorum/leadership.go",
			"		return (len(v.Others) + 1) / 2\n", "		return (len(v.Others)+1)/2 - 1\n"}},
		Hunt: simulate(),
	},
	{
		Name: "results-of-another-caller",
		Bug:  "a caller gets the results of the commands that share an entry with its own",
		Edits: []Edit{{"server/entry/queue.go",
			"			own := results[:n:n]\n", "			own := results[len(results)-n:]\n"}},
		Hunt: simulate(),
	},
	{
		Name: "notice-ahead",
		Bug:  "a notice says that entries are committed which the follower was not sent",
		Edits: []Edit{{"server/quorum/notices.go",
			"	index := min(commit, n.last)\n", "	index := commit\n"}},
		Hunt: simulate(),
	},
	{
		Name: "queued-across-terms",
		Bug:  "what waits to be proposed when a leadership ends is committed under the next one",
		Edits: []Edit{{"server/entry/form.go",
			"	if b[0].Term != s.term {\n", "	if b[0].Term > s.term {\n"}},
		Hunt: simulate(),
	},
	{
		Name: "decided-in-another-term",
		Bug:  "a leader's own proposals are taken after its term, though they follow from what only it knew then",
		Edits: []Edit{{"server/replica/propose.go",
			"term != 0 && term != lead.term {", "term > lead.term {"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestAnEntryIsOfOneTerm"}},
	},
	{
		Name: "entry-without-a-term",
		Bug:  "a leader does not say in which term it has stamped an entry",
		Edits: []Edit{{"server/entry/form.go",
			"Commands: commands, Term: s.term, ", "Commands: commands, "}},
		Hunt: Hunt{Engine: Tests, Args: []string{"server/replica", "TestAnEntryIsOfOneTerm"}},
	},
	{
		Name:  "entries-of-any-weight",
		Bug:   "an entry holds thousands of reports, and everybody waits until it is applied",
		Edits: []Edit{{"server/entry/queue.go", "		f.weight += p.Weight\n", ""}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"server/entry", "TestEntriesAreBoundedByWeight"}},
	},
	{
		Name:  "nobody-is-to-blame",
		Bug:   "who sends large requests that have to be refused may go on with that for ever",
		Edits: []Edit{{"api/intake/sender.go", "	if refused {\n", "	if false {\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"api/intake", "TestWhoSendsRefusedRequestsPaysForThem"}},
	},
	{
		Name: "watch-that-skips",
		Bug:  "a watch drops an event at the end of a message",
		Edits: []Edit{{"server/rpc/watch.go",
			"		more = w.position < newest\n",
			"		if more = w.position < newest; more {\n			w.position++\n		}\n"}},
		Hunt: run("leader-kill", "--count", "4").by("watch"),
	},
	{
		Name: "watch-that-repeats",
		Bug:  "a watch that is resumed begins with the event that was seen last",
		Edits: []Edit{{"server/rpc/watch.go",
			"position:   req.GetAfterRevision(),",
			"position:   max(req.GetAfterRevision(), 1) - 1,"}},
		Hunt: run("leader-kill", "--count", "4").by("watch"),
	},
}

// run hunts with real processes of the mutant.
func run(scenario string, args ...string) Hunt {
	return Hunt{Engine: Processes, Args: append([]string{scenario}, args...)}
}
