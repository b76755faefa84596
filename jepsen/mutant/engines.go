package mutant

// engines are bugs of what is decided by what nodes say of engines.
var engines = []Mutant{
	{
		Name: "engines-of-before-the-loss",
		Bug:  "what a node says of its engines counts, though the node was given up since",
		Edits: []Edit{{"fsm/engine.go",
			"n == nil || n.Incarnation != c.Incarnation || n.State != state.NodeUp",
			"n == nil || n.State != state.NodeUp"}},
		Hunt: simulate(),
	},
	{
		Name: "failed-and-still-resident",
		Bug:  "a model whose engine has failed on a chunk is believed to be resident there",
		Edits: []Edit{{"fsm/engine.go",
			"	if !x.engineFailed(n.ID, &failed) || x.uses(n, &failed) {\n",
			"	if !x.engineFailed(n.ID, &failed) || true {\n"}},
		Hunt: simulate(),
	},
	{
		Name: "failed-in-use-stays-resident",
		Bug:  "a model whose engine failed while an action used it is believed to be resident when the action has ended",
		Edits: []Edit{{"fsm/gpu.go",
			"	if x.engineFailed(n.ID, &use) {\n",
			"	if use.Model == \"\" {\n"}},
		Hunt: simulate(),
	},
	{
		Name: "set-up-not-charged",
		Bug:  "how long an engine takes to set up is measured, and no action is charged for it",
		Edits: []Edit{{"fsm/state/engine.go",
			"		return e.SetUpNS\n",
			"		return 0\n"}},
		Hunt: simulate(),
	},
	{
		Name: "set-up-measured-twice",
		Bug:  "a set-up whose report was repeated, because its answer was lost, counts twice",
		Edits: []Edit{{"fsm/engine.go",
			" && !repeats(&was, &said) {\n",
			" {\n"}},
		Hunt: simulate(),
	},
	{
		Name: "engine-changed-and-nobody-told",
		Bug:  "a node is not told that the engine of a model on it is declared in another way",
		Edits: []Edit{{"fsm/engine.go",
			"		if slices.ContainsFunc(r.Models, func",
			"		if false && slices.ContainsFunc(r.Models, func"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm", "TestNodesAreToldOfTheirEngines"}},
	},
	{
		Name: "a-lost-node-has-models",
		Bug:  "when a node is lost that runs too much for one entry, its models are expected to be resident later",
		Edits: []Edit{{"fsm/gpu.go",
			"	if use.Model == \"\" || n.State != state.NodeUp {\n",
			"	if use.Model == \"\" {\n"}},
		Hunt: Hunt{Engine: Tests, Args: []string{"fsm", "TestALostNodeWithAModelInUseIsSettledInParts"}},
	},
}
