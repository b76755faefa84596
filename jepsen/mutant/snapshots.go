package mutant

// snapshots are bugs of snapshots of files: of the state machine, and of agents.
var snapshots = []Mutant{
	{
		Name:  "fork-before-ready",
		Bug:   "a trajectory begins with a snapshot that has not been taken",
		Edits: []Edit{{"fsm/filesnapshot.go", "	case r.State != state.FileSnapshotReady:\n		return refuse(codeFailedPrecondition, \"SNAPSHOT_NOT_READY\"", "	case r.State == state.FileSnapshotFailed:\n		return refuse(codeFailedPrecondition, \"SNAPSHOT_NOT_READY\""}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestTranscripts/snapshots"}},
	},
	{
		Name:  "snapshot-outlives-fence",
		Bug:   "a recovered state has snapshots on nodes that it has given up",
		Edits: []Edit{{"fsm/node.go", "		x.loseSnapshots(n)\n		x.s.DeleteResidency(id)\n", "		x.s.DeleteResidency(id)\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"fsm", "TestAFenceLosesSnapshotsAtOnce"}},
	},
	{
		Name:  "unreadable-is-missing",
		Bug:   "an agent takes a record of files that it cannot read for one that is not there",
		Edits: []Edit{{"agent/layers/store.go", "	if errors.Is(err, fs.ErrNotExist) {\n		return nil, nil\n	}\n	return h, err\n", "	if err != nil {\n		return nil, nil\n	}\n	return h, err\n"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/layers", "TestARecordThatCannotBeReadIsNotMissing"}},
	},
	{
		Name:  "torn-snapshot-survives",
		Bug:   "after a loss of power an agent offers snapshots whose files were not on disk",
		Edits: []Edit{{"agent/layers/settle.go", `case err != nil || snap.Boot == "":`, `case err != nil || snap.Boot != s.boot:`}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/layers", "TestWhatWasNotOnDiskIsLostWithPower"}},
	},
	{
		Name:  "removed-snapshot-comes-back",
		Bug:   "an agent that notes that the files of a snapshot are on disk writes its record again though it was removed meanwhile",
		Edits: []Edit{{"agent/layers/settle.go", "	if errors.Is(err, fs.ErrNotExist) {\n		return nil\n	}\n	if err != nil {\n		return err\n	}\n	snap.Boot", "	if errors.Is(err, fs.ErrNotExist) {\n		snap, err = &snapshot{}, nil\n	}\n	if err != nil {\n		return err\n	}\n	snap.Boot"}},
		Hunt:  Hunt{Engine: Tests, Args: []string{"agent/layers", "TestARemovedSnapshotIsNotWrittenAgain"}},
	},
}
