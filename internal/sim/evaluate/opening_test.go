package evaluate

import "testing"

// TestASandboxOpensOnce: the first action of a trajectory waits for its sandbox, under every
// policy that has no pods, and holds what it was granted meanwhile.
func TestASandboxOpensOnce(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=1", "tasks.coding.turns={\"fixed\":2}",
		"tasks.coding.tools.shell.duration={\"fixed\":\"1s\"}", "tasks.coding.tools.edit.duration={\"fixed\":\"1s\"}",
		"baseline.pods.start={\"fixed\":\"0s\"}")...)
	s.Latency = Latency{Open: 3 * second}
	for policy, want := range map[string][]float64{
		"rota": {4, 1, 2}, "fixed-2": {4, 1, 4}, "equal": {4, 1, 2}, "aged-10": {4, 1, 2}, "pod": {1, 1, 8},
	} {
		r := run(t, s, policy)
		wantACTs(t, r, want...)
		if opening := policy != "pod"; opening && r.OverheadMean != 1000 || !opening && r.OverheadMean != 0 {
			t.Errorf("%s: %+v", policy, r.Stats)
		}
	}
	r := run(t, s, "rota") // 4 s and 1 s of one core, then 2 s of four
	if want := int64(4+1+2*4) * 1_000_000 / (4 * 7); r.Utilisation != want {
		t.Errorf("%d of a million of the cores were held, want %d", r.Utilisation, want)
	}
}

// TestASandboxOpensWhileTheModelThinks: only what is left of an opening when the first action comes is waited for.
func TestASandboxOpensWhileTheModelThinks(t *testing.T) {
	for think, wait := range map[string]float64{"2s": 1, "3s": 0, "9s": 0} {
		s := setup(t, "coding", append(rewardsOnly, "batch=1", "tasks.coding.turns={\"fixed\":1}", "tasks.coding.think_ppm=1000000", "tasks.coding.think={\"fixed\":\""+think+"\"}",
			"tasks.coding.tools.shell.duration={\"fixed\":\"1s\"}", "tasks.coding.tools.edit.duration={\"fixed\":\"1s\"}")...)
		s.Latency = Latency{Open: 3 * second}
		for _, policy := range []string{"rota", "equal", "aged-10"} {
			wantACTs(t, run(t, s, policy), 1+wait, 2)
		}
	}
}

// TestASandboxOpensWhenThereIsANode: a trajectory that waits for the memory of another one opens its own then.
func TestASandboxOpensWhenThereIsANode(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=2")...)
	s.Latency = Latency{Open: 3 * second}
	in := must(s.Input())
	for number := range 2 {
		trajectory := in.generator.Trajectory(number)
		trajectory.Memory = int64(in.Params().Cluster.NodeMemory.Value)
		in.replayed = append(in.replayed, trajectory)
	}
	wantACTs(t, must(Run(t.Context(), in, "rota")), 5, 10)
}

// TestACallOfNoTrajectoryOpensNothing: it is an action of its own, without a sandbox.
func TestACallOfNoTrajectoryOpensNothing(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=1")...)
	s.Latency = Latency{Open: 3 * second}
	in := must(s.Input())
	trajectory := in.generator.Trajectory(0)
	trajectory.Alone = true
	in.replayed = append(in.replayed, trajectory)
	for _, policy := range []string{"rota", "equal"} {
		wantACTs(t, must(Run(t.Context(), in, policy)), 2)
	}
}

// TestWhatIsResizedWhileItOpensHoldsWhatItHas: the first suite has all four cores until the second
// comes, and two from then on, while both of their sandboxes open.
func TestWhatIsResizedWhileItOpensHoldsWhatItHas(t *testing.T) {
	s := setup(t, "coding", append(rewardsOnly, "batch=2", "tasks.coding.start={\"uniform\":[\"0s\",\"2s\"]}")...)
	s.Latency = Latency{Open: 3 * second}
	r := run(t, s, "rota")
	busy, begun := int64(0), r.end
	for _, e := range r.entries {
		busy += e.busy
		begun = min(begun, e.submitted)
	}
	if over := busy - 4*(r.end-begun); len(r.entries) != 2 || over < -1000 || over > 1000 {
		t.Errorf("%d core nanoseconds were held within %d ns, want four times as many", busy, r.end-begun)
	}
}
