package mutant

import "time"

// agents are bugs of the agents and their supervisors. Real processes are hunted.
var agents = []Mutant{
	{
		Name: "changes-of-another-state",
		Bug:  "an agent applies changes though it has missed some before them",
		Edits: []Edit{{"agent/desired.go",
			"m.GetSince() != 0 && m.GetSince() != t.minIndex {", "m.GetSince() != 0 && m.GetSince() > m.GetIndex() {"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"agent", "TestChangesOfTheDesiredState"}},
	},
	{
		Name: "agent-ignores-its-lease",
		Bug:  "what runs on a node goes on when its lease has ended",
		Edits: []Edit{
			{"agent/lease.go", "		if l.Expired() {\n", "		if l.Expired() && l.Deadline() == 0 {\n"},
			{"agent/runtime/supervisor.go", "	due := s.deadline != 0 && ", "	due := s.deadline < 0 && "},
		},
		Hunt: run("agent-partitions", "--count", "4"),
	},
	{
		Name: "supervisor-ignores-its-deadline",
		Bug:  "a supervisor relies on its agent to kill what the lease no longer allows",
		Edits: []Edit{{"agent/runtime/supervisor.go",
			"	due := s.deadline != 0 && ",
			"	due := s.deadline < 0 && "}},
		Hunt: run("pause-agents"),
	},
	{
		Name: "readopted-attempt-started-again",
		Bug:  "an agent that was restarted starts again what still runs",
		Edits: []Edit{
			{"agent/table.go", "	t.change(func() { t.add(a) })\n", "	_ = a\n"},
			{"agent/table.go", "		t.add(&attempt{key: key, phase: phaseRunning, kill: runtime.ReasonNodeLost})\n", ""},
			{"agent/runtime/table.go", "	case s.attempts[spec.Key] != nil:\n", "	case s.attempts[spec.Key] != nil && s.running < 0:\n"},
		},
		Hunt: run("kills"),
	},
	{
		Name: "journals-after-start",
		Bug:  "agent and supervisor write down that an attempt starts when it has started",
		Edits: []Edit{
			{"agent/workers.go",
				"			if err := a.journal.Accept(keys); err != nil {\n				return fmt.Errorf(\"accept attempts: %w\", err)\n			}\n",
				"			time.AfterFunc(time.Second, func() { _ = a.journal.Accept(keys) })\n"},
			{"agent/runtime/table.go",
				"	if err := s.journal.write(&record{Start: &spec.Key}); err != nil {\n		return err\n	}\n",
				""},
		},
		Hunt: run("kills"),
	},
	{
		Name: "children-outlive-their-attempt",
		Bug:  "the end of an attempt kills its first process and not what that has started",
		Edits: []Edit{
			{"agent/runtime/cgroupbox.go",
				"	if writeFile(filepath.Join(dir, \"cgroup.kill\"), \"1\") != nil {\n		killFrozen(dir, func() []int { return readPIDs(filepath.Join(dir, \"cgroup.procs\")) })\n",
				"	if pids := readPIDs(filepath.Join(dir, \"cgroup.procs\")); len(pids) > 0 {\n		killFrozen(dir, func() []int { return pids[:1] })\n"},
			{"agent/runtime/cgroupbox.go", "\"cgroup.events\"), \"populated\") == 0\n", "\"cgroup.events\"), \"populated\") >= 0\n"},
			{"agent/runtime/cgroupbox.go", "	return err == nil && len(bytes.TrimSpace(procs)) == 0\n", "	return err == nil && len(bytes.TrimSpace(procs)) >= 0\n"},
		},
		Hunt: run("kills"),
	}, {
		Name: "everybody-uses-the-first-key",
		Bug:  "commands are told to use the first key of a quota, whichever their units are of",
		Edits: []Edit{{"agent/spec.go",
			"strconv.FormatUint(uint64(q.GetKey()), 10)",
			"strconv.FormatUint(min(1, uint64(q.GetKey())), 10)"}},
		Hunt: run("resources"),
	},
	{
		Name: "gpus-counted-from-zero",
		Bug:  "commands are told to use the first GPUs of their node, as many as they were granted",
		Edits: []Edit{{"agent/spec.go",
			"	for _, gpu := range list {\n",
			"	for i := range list {\n		gpu := uint32(i)\n"}},
		Hunt: run("resources"),
	},
	{
		Name: "all-cores-for-everybody",
		Bug:  "an attempt runs on all cores of its node, however many it was granted",
		Edits: []Edit{{"agent/spec.go",
			"		spec.CPUs = cpus\n",
			"		if len(cpus) > 0 {\n			spec.CPUs = slices.Concat(s.inv.NUMA...)\n		}\n"}},
		Hunt: run("leader-kill"),
	},
	{
		Name: "reports-not-bounded-by-bytes",
		Bug:  "an agent reports so many ends in one call that servers refuse its size, again and again",
		Edits: []Edit{
			{"agent/report.go", "	reportBytesMax = 1 << 20\n", "	reportBytesMax = 1 << 30\n"},
			{"agent/report.go", "|| codec.TooLarge(err))", "|| false && codec.TooLarge(err))"},
		},
		Hunt: Hunt{Engine: Processes, Args: []string{"full-tails"}, Within: 5 * time.Minute},
	},
	{
		Name:  "processes-share-the-cpu",
		Bug:   "each process of an attempt gets a part of a CPU, so a fork bomb takes it from all others",
		Edits: []Edit{{"agent/runtime/cgroup.go", `"pids", "cpu"}`, `"pids"}`}, {"agent/runtime/cgroups.go", `if c.holder("cpu") == nil {`, `if false {`}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/runtime", "TestManyProcessesShareOnePartOfACPU"}},
	},
}
