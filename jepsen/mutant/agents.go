package mutant

import "time"

// agents are bugs of the agents and their supervisors. Real processes are hunted.
var agents = []Mutant{
	{
		Name: "changes-of-another-state",
		Bug:  "an agent applies changes though it has missed some before them",
		Edits: []Edit{{"agent/plan/desired.go",
			"d.Since != 0 && d.Since != t.index:", "d.Since != 0 && d.Since > d.Index:"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/plan", "TestChangesOfTheDesiredState"}},
	},
	{
		Name: "journal-writes-overtake-each-other",
		Bug:  "an agent writes to its journal while it is writing, so that a note to forget an attempt comes after its acceptance",
		Edits: []Edit{{"agent/plan/desk.go",
			"	if d.writing != nil {\n", "	if d.writing != nil && len(d.writing.Accept) > ReportsMax {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/plan", "TestALateForgetDoesNotUndoAnAcceptance"}},
	},
	{
		Name: "late-answer-is-believed",
		Bug:  "an agent takes an attempt for running that a supervisor started and then died of, when its answer is read late",
		Edits: []Edit{{"agent/plan/link.go",
			"p.link.auditDue || old //", "p.link.auditDue || (old && now < 0) //"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/plan", "TestAnyHistory"}},
	},
	{
		Name: "agent-ignores-its-lease",
		Bug:  "what runs on a node goes on when its lease has ended",
		Edits: []Edit{
			{"agent/plan/session.go", "		if s.lease.Expired(now) {\n", "		if s.lease.Expired(now) && s.lease.deadline == 0 {\n"},
			{"agent/runtime/deadline.go", "	due := s.deadline != 0 && ", "	due := s.deadline < 0 && "},
		},
		Hunt: run("agent-partitions", "--count", "4").by("at-most-one"),
	},
	{
		Name: "supervisor-ignores-its-deadline",
		Bug:  "a supervisor relies on its agent to kill what the lease no longer allows",
		Edits: []Edit{{"agent/runtime/deadline.go",
			"	due := s.deadline != 0 && ",
			"	due := s.deadline < 0 && "}},
		Hunt: run("pause-agents").by("at-most-one", "engines"),
	},
	{
		Name: "frozen-supervisor-keeps-engines",
		Bug:  "an agent kills a supervisor that stands still for the sake of attempts only, so that engines outlive the lease",
		Edits: []Edit{{"agent/plan/session.go",
			"		return p.enginesDie && !p.ready(now)\n", "		return p.enginesDie && now < 0\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/plan", "TestAFrozenSupervisorIsKilledForEngines"}},
	},
	{
		Name: "collection-during-a-fork",
		Bug:  "a supervisor stands still, and ends no lease, while a program hangs before it is executed and garbage is to be collected",
		Edits: []Edit{{"agent/runtime/supervisor.go",
			"	collectBetweenForks()\n", ""}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/runtime", "TestAProgramThatHangsWithoutTheLauncher"}},
	},
	{
		Name: "readopted-attempt-started-again",
		Bug:  "an agent that was restarted starts again what still runs",
		Edits: []Edit{
			{"agent/plan/plan.go", "		p.table.add(a)\n", "		_ = a\n"},
			{"agent/plan/link.go", "		p.table.add(a)\n", ""},
			{"agent/plan/link.go", "	p.table.hold(a, r.CPUs)\n", ""},
			{"agent/runtime/table.go", "	case s.attempts[spec.Key] != nil:\n", "	case s.attempts[spec.Key] != nil && s.running < 0:\n"},
		},
		Hunt: run("kills").by("at-most-one"),
	},
	{
		Name: "journals-after-start",
		Bug:  "agent and supervisor write down that an attempt starts when it has started",
		Edits: []Edit{
			{"agent/driver.go",
				"		if err := s.journal.Accept(step.Accept); err != nil {\n			s.fail(fmt.Errorf(\"accept attempts: %w\", err))\n			return\n		}\n",
				"		time.AfterFunc(time.Second, func() { _ = s.journal.Accept(step.Accept) })\n"},
			{"agent/runtime/table.go",
				"	if err := s.journal.write(&record{Start: &spec.Key}); err != nil {\n		return err\n	}\n",
				""},
		},
		Hunt: run("kills").by("at-most-one"),
	},
	{
		Name: "children-outlive-their-attempt",
		Bug:  "the end of an attempt kills the leaders of sessions and not what they have started",
		Edits: []Edit{
			{"agent/runtime/cgroupbox.go",
				"	if writeFile(filepath.Join(dir, \"cgroup.kill\"), \"1\") != nil {\n		signalFrozen(dir, func() []int { return readPIDs(filepath.Join(dir, \"cgroup.procs\")) }, syscall.SIGKILL)\n",
				"	if follows := func(pid int) bool { f := statFields(pid); return len(f) < 4 || f[3] != strconv.Itoa(pid) }; dir != \"\" {\n		signalFrozen(dir, func() []int { return slices.DeleteFunc(readPIDs(filepath.Join(dir, \"cgroup.procs\")), follows) }, syscall.SIGKILL)\n"},
			{"agent/runtime/cgroupbox.go", "slices.Contains(strings.Split(string(events), \"\\n\"), \"populated 0\")", "len(events) > 0"},
			{"agent/runtime/cgroupbox.go", "	return err == nil && len(bytes.TrimSpace(procs)) == 0\n", "	return err == nil && len(bytes.TrimSpace(procs)) >= 0\n"},
		},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent/runtime", "TestNothingSurvivesAnAttempt"}},
	}, {
		Name: "everybody-uses-the-first-key",
		Bug:  "commands are told to use the first key of a quota, whichever their units are of",
		Edits: []Edit{{"agent/spec.go",
			"strconv.FormatUint(uint64(q.GetKey()), 10)",
			"strconv.FormatUint(min(1, uint64(q.GetKey())), 10)"}},
		Hunt: run("resources").by("quotas", "windows"),
	},
	{
		Name: "gpus-counted-from-zero",
		Bug:  "commands are told to use the first GPUs of their node, as many as they were granted",
		Edits: []Edit{{"agent/spec.go",
			"	for _, gpu := range list {\n",
			"	for i := range list {\n		gpu := uint32(i)\n"}},
		Hunt: run("resources").by("gpus"),
	},
	{
		Name: "all-cores-for-everybody",
		Bug:  "an attempt runs on all cores of its node, however many it was granted",
		Edits: []Edit{
			{"agent/spec.go",
				"		spec.CPUs, spec.Follows = cpus, as.GetMaxCores() > 0\n",
				"		if len(cpus) > 0 {\n			spec.CPUs = slices.Concat(s.inv.NUMA...)\n		}\n"},
			{"agent/driver.go",
				"		spec.CPUs = step.CPUs\n",
				""},
		},
		Hunt: run("leader-kill").by("cores"),
	},
	{
		Name: "reports-not-bounded-by-bytes",
		Bug:  "an agent reports so many ends in one call that servers refuse its size, again and again",
		Edits: []Edit{
			{"agent/plan/desk.go", "	ReportBytesMax = 1 << 20\n", "	ReportBytesMax = 1 << 30\n"},
			{"agent/report.go", "|| codec.TooLarge(err))", "|| false && codec.TooLarge(err))"},
		},
		Hunt: Hunt{Engine: Processes, Args: []string{"full-tails"}, Within: 5 * time.Minute}.by("ends", "recovery"),
	},
	{
		Name:  "processes-share-the-cpu",
		Bug:   "each process of an attempt gets a part of a CPU, so a fork bomb takes it from all others",
		Edits: []Edit{{"agent/runtime/cgroup.go", `"pids", "cpu"}`, `"pids"}`}, {"agent/runtime/cgroups.go", `if c.holder("cpu") == nil {`, `if false {`}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/runtime", "TestManyProcessesShareOnePartOfACPU"}},
	},
	{
		Name:  "sandbox-of-an-ended-trajectory",
		Bug:   "a sandbox that was being opened ahead while its trajectory ended stays",
		Edits: []Edit{{"agent/openahead.go", "		o.homes.sweep()\n		return\n", "		return\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent", "TestASandboxOfATrajectoryThatEndedMeanwhileIsSwept"}},
	},
	{
		Name:  "failed-pull-ahead-is-remembered",
		Bug:   "the first action fails, untried, with the error of a pull that only an opening ahead of it had wanted",
		Edits: []Edit{{"agent/runtime/container/pull.go", "if one == nil || one.err != nil && !ahead && !one.wasAsked() {", "if one == nil {"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/runtime/container", "TestAFailedPullAheadOfAnActionIsTriedAgain"}},
	},
	{
		Name:  "placements-not-told",
		Bug:   "a node hears of sandboxes to open only with the whole state, half a minute later",
		Edits: []Edit{{"server/dispatch/dispatch.go", "	for s := range h.streams[node] {\n		s.placed.Store(true)\n", "	for s := range h.streams[node] {\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"server/dispatch", "TestAPlacementIsToldAtOnce"}},
	},
}
