package mutant

// gpuHealth are bugs of what becomes of GPUs that are out of use.
var gpuHealth = []Mutant{
	{
		Name: "sick-gpus-are-given",
		Bug:  "GPUs that are sick or disabled are still given to new attempts",
		Edits: []Edit{{"fsm/gpuhealth.go",
			"		m.GPUs.Free = m.InUse() &^ x.heldGPUs",
			"		m.GPUs.Free = state.AllGPUs(m.GPUs.Count) &^ x.heldGPUs"}},
		Hunt: membersTest("fsm", "TestMembersAreNeverGivenTwice"),
	},
	{
		Name: "sick-gpus-back-with-the-attempt",
		Bug:  "GPUs that became sick while an attempt held them are given again when it has ended",
		Edits: []Edit{{"fsm/gpu.go",
			"	n.GPUs.Free |= t.Chunk.GPUs() & n.InUse()\n",
			"	n.GPUs.Free |= t.Chunk.GPUs()\n"}},
		Hunt: simulate(),
	},
	{
		Name: "resident-on-sick-gpus",
		Bug:  "a model stays resident on GPUs that became sick while an action used it",
		Edits: []Edit{{"fsm/gpu.go",
			" || t.Chunk.GPUs()&n.OutOfUse() != 0 {\n",
			" {\n"}},
		Hunt: simulate(),
	},
}
