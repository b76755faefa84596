package evaluate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/internal/sim/workload"
)

// setup makes a workload with figures set as "path=value".
func setup(t testing.TB, name string, sets ...string) Setup {
	t.Helper()
	s := Setup{Workload: name, Seed: 1}
	for _, set := range sets {
		path, value, _ := strings.Cut(set, "=")
		if err := s.Set(path, value); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func run(t testing.TB, s Setup, policy string) *Result {
	t.Helper()
	in, err := s.Input()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), in, policy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// acts are the times to completion in the order of the ends, in seconds.
func acts(r *Result) (out []float64) {
	for _, e := range r.entries {
		out = append(out, float64(e.act)/second)
	}
	return out
}

func wantACTs(t *testing.T, r *Result, want ...float64) {
	t.Helper()
	got := acts(r)
	if len(got) != len(want) {
		t.Fatalf("actions took %v, want %v", got, want)
	}
	for i := range got {
		if d := got[i] - want[i]; d < -0.001 || d > 0.001 {
			t.Fatalf("actions took %v, want %v", got, want)
		}
	}
}

// rewardsOnly is a batch of coding that thinks of nothing and begins with its
// rewards: 8 s of one core each, perfectly parallel.
var rewardsOnly = []string{
	"tasks.coding.turns={\"fixed\":0}", "tasks.coding.think={\"fixed\":0}", "tasks.coding.start={\"fixed\":0}",
	"tasks.coding.rewards.pytest.duration={\"fixed\":\"8s\"}", "tasks.coding.rewards.pytest.noise_ppm={\"fixed\":1000000}",
	"tasks.coding.rewards.pytest.serial_ppm={\"fixed\":0}",
	"baseline.pods.start={\"fixed\":\"1s\"}", "baseline.pods.rate=1",
	"nodes=1", "cores=4", "batch=3",
}

func TestPodsAreCreatedOneAfterTheOtherAndShareTheirNode(t *testing.T) {
	// Ready at 1, 2 and 3 s. On two cores the first has 1 s of a core of its own,
	// the first two have 1 s each; then 2/3 of a core for each. The first has 6 s
	// left and ends at 12; the second then 1 and the third 2, a core for each.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "cores=2")...), "pod"), 12, 13, 14)
	// On four cores each has one.
	r := run(t, setup(t, "coding", rewardsOnly...), "pod")
	wantACTs(t, r, 9, 10, 11)
	if r.QueueMean != 2000 || r.ExecMean != 8000 || r.OverheadMean != 0 || r.Utilisation != 24*1_000_000/(4*11) {
		t.Errorf("%+v", r.Stats)
	}
	// A pod that may use half a core takes twice as long.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "baseline.pods.limit_milli=500")...), "pod"), 17, 18, 19)
	// Rewards of four processes that share four cores: 8 s of a core in 2 s, the
	// second gets two cores from 2 s on, and so forth.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "baseline.reward_units=4", "baseline.pods.rate=1000000")...), "pod"), 7, 7, 7)
}

func TestPodsWaitForRoom(t *testing.T) {
	// Requests of a core each fill two cores; the third pod is placed when the
	// first ends, at 9 s, and is ready at 10.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "cores=2", "baseline.pods.request_milli=1000")...), "pod"), 9, 10, 18)
	// The same by memory.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "tasks.coding.memory={\"fixed\":\"1GiB\"}", "cluster.node_memory=\"2GiB\"")...), "pod"), 9, 10, 18)
}

func TestEqualShares(t *testing.T) {
	// 8 s of a core each, perfectly parallel, on four cores.
	wantACTs(t, run(t, setup(t, "coding", rewardsOnly...), "equal"), 6, 6, 6)
	r := run(t, setup(t, "coding", append(rewardsOnly, "cores=128")...), "equal") // 32 of which each can use
	wantACTs(t, r, 0.25, 0.25, 0.25)
	if r.Utilisation != 750_000 {
		t.Errorf("%d", r.Utilisation)
	}
	// Half of it is serial: 4 s, and 4 on a core and a third.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "tasks.coding.rewards.pytest.serial_ppm={\"fixed\":500000}")...), "equal"), 7, 7, 7)
	// Two thirds of a core each on two.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "cores=2")...), "equal"), 12, 12, 12)
}

func TestAFixedDegreeQueuesForItsCores(t *testing.T) {
	// Two cores each on four: 4 s for the first two, the third after them.
	s := setup(t, "coding", rewardsOnly...)
	r := run(t, s, "fixed-2")
	wantACTs(t, r, 4, 4, 8)
	if r.Utilisation != 750_000 || r.QueueMean != 1333.333 {
		t.Errorf("%+v", r)
	}
	wantACTs(t, run(t, s, "fixed-4"), 2, 4, 6)
	// A degree above what the action can use is what it can use.
	wantACTs(t, run(t, setup(t, "coding", append(rewardsOnly, "cores=128")...), "fixed-64"), 0.25, 0.25, 0.25)
	// The first trajectory opens in an entry of its own, until 10 ms; its action is
	// submitted with the opening of the others, until 20, and starts at 50. Theirs
	// are submitted until 30. The third starts with the report of the first, which
	// is committed at 4.06 s.
	s.Latency = Latency{Commit: 10_000_000, Dispatch: 30_000_000}
	r = run(t, s, "fixed-2")
	wantACTs(t, r, 4.06, 4.07, 8.1)
	if r.ExecMean != 4000 {
		t.Errorf("%+v", r)
	}
}

func TestTheStateMachineDoesAWholeStep(t *testing.T) {
	s := setup(t, "coding", "batch=24", "steps=2", "nodes=2", "cores=16")
	s.Latency = DefaultLatency
	in, err := s.Input()
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for i := range in.Trajectories() {
		trajectory := in.generator.Trajectory(i)
		want += len(trajectory.Turns)
	}
	r := run(t, s, "rota")
	if int(r.Actions) != want || r.Trajectories != 48 || r.Failed != 0 || r.OverheadMean < 5 || r.Kinds["reward"].Actions != 48 {
		t.Errorf("%d actions, want %d: %+v", r.Actions, want, r)
	}
	conserved(t, r)
}

// TestGPUAttemptsKeepTheirGPUs: what changes the cores of a node changes nothing for
// attempts on GPUs.
func TestGPUAttemptsKeepTheirGPUs(t *testing.T) {
	for _, known := range []string{"profiles", "classes"} {
		r := run(t, setup(t, "deepsearch", "batch=64", "known="+known), "rota")
		for _, e := range r.entries {
			if e.kind == workload.Reward && e.exec > 0 && e.busy < e.exec {
				t.Fatalf("known=%s: %+v took less than one GPU", known, e)
			}
		}
	}
}

// conserved checks that nothing is used that is not there, and that times add up.
func conserved(t interface{ Fatalf(string, ...any) }, r *Result) {
	var changes [][2]int64
	for _, e := range r.entries {
		if e.act < e.queue+e.exec || e.queue < 0 || e.exec < 0 {
			t.Fatalf("%+v does not add up", e)
		}
		// How wide one was that was resized is not kept: the machine counts those itself. Nor is
		// what one held while its sandbox opened.
		if e.act-e.queue-e.exec >= DefaultLatency.Open {
			continue
		}
		if e.exec > 0 && e.busy > 0 && e.busy%e.exec == 0 {
			units := e.busy / e.exec
			changes = append(changes, [2]int64{e.started, units}, [2]int64{e.started + e.exec, -units})
		}
	}
	slices.SortFunc(changes, func(a, b [2]int64) int {
		if a[0] != b[0] {
			return int(a[0] - b[0])
		}
		return int(a[1] - b[1])
	})
	used := int64(0)
	for _, c := range changes {
		if used += c[1]; used > r.Capacity.Units && r.Capacity.Units > 0 {
			t.Fatalf("%d units are used at %d, there are %d", used, c[0], r.Capacity.Units)
		}
	}
	if r.Utilisation > 1_000_000 || r.Busy > 1_000_000 || r.Busy < r.Utilisation {
		t.Fatalf("utilisation %d and %d ppm", r.Utilisation, r.Busy)
	}
}

// TestACoreHasOneUser: the machine notices if it has two.
func TestACoreHasOneUser(t *testing.T) {
	in, err := setup(t, "coding", "batch=1", "steps=1", "nodes=1", "cores=16").Input()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{in: in, ctx: context.Background()}
	m, err := newMachine(w, mapping{})
	if err != nil {
		t.Fatal(err)
	}
	m.use(1, 16)
	if w.err != nil {
		t.Fatal(w.err)
	}
	if m.use(1, 1); w.err == nil {
		t.Error("17 of 16 cores are in use, and nobody notices")
	}
}

func TestNothingIsLostOrUsedTwice(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		num := func(name string, low, high int64) string {
			return name + "=" + string(must(json.Marshal(rapid.Int64Range(low, high).Draw(r, name))))
		}
		s := setup(t, "coding", num("batch", 1, 20), num("nodes", 1, 3), num("serial", 0, 1_000_000), num("seed", 0, 1000), "tasks.coding.turns={\"uniform\":[0,6]}", "cores=16")
		if rapid.Bool().Draw(r, "wide") {
			must(0, s.Set("tool-width", "3"))
		}
		s.Latency = DefaultLatency
		in := must(s.Input())
		want := int64(0)
		for i := range in.Trajectories() {
			want += int64(len(in.generator.Trajectory(i).Turns))
		}
		for _, policy := range []string{"rota", "fixed-4", "pod"} {
			result := must(Run(context.Background(), in, policy))
			if result.Actions != want {
				r.Fatalf("%s: %d actions, want %d", policy, result.Actions, want)
			}
			if policy != "pod" { // whose rates are no whole cores
				conserved(r, result)
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// oneTeacher is a batch of MOPD with one model: 8 s on one GPU.
var oneTeacher = []string{
	"tasks.mopd.think={\"fixed\":0}", "tasks.mopd.start={\"fixed\":0}",
	"tasks.mopd.rewards.logprob.duration={\"fixed\":\"8s\"}", "tasks.mopd.rewards.logprob.noise_ppm={\"fixed\":1000000}",
	"tasks.mopd.rewards.logprob.ratio_ppm=[[1,1000000],[2,1000000],[4,1000000],[8,1000000]]",
	"batch=3",
}

func TestStaticServicesTakeWhatComesFirst(t *testing.T) {
	one := "tasks.mopd.rewards.logprob.variants=[{\"name\":\"teacher-1\",\"weight\":1,\"duration_ppm\":1000000,\"think_ppm\":1000000}]"
	r := run(t, setup(t, "mopd", append(oneTeacher, one)...), "static")
	wantACTs(t, r, 2, 4, 6)
	if r.Capacity != (Capacity{"gpu", 36}) || r.Utilisation != 3*8*1_000_000/(36*6) {
		t.Errorf("%+v", r)
	}
	wantACTs(t, run(t, setup(t, "mopd", append(oneTeacher, one, "baseline.static.0.replicas=2")...), "static"), 2, 2, 4)
}

// calls is a batch of DeepSearch that fetches one page each, of a provider that
// takes one call at a time, in a second.
var calls = []string{
	"tasks.deepsearch.turns={\"fixed\":1}", "tasks.deepsearch.think={\"fixed\":0}", "tasks.deepsearch.start={\"fixed\":0}",
	"tasks.deepsearch.tools.search.weight=0", "tasks.deepsearch.tools.parse-pdf.weight=0", "tasks.deepsearch.tools.browse.weight=0",
	"tasks.deepsearch.tools.fetch.duration={\"fixed\":\"1s\"}",
	"providers.page.limit=1", "providers.page.error_ppm=0", "providers.page.overrun_error_ppm=1000000",
	"providers.page.overrun_latency={\"fixed\":\"100ms\"}", "batch=3",
}

func tools(r *Result) *Result {
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool { return e.kind != workload.Tool })
	return r
}

func TestCallsBeyondALimitAreTriedAgain(t *testing.T) {
	// The first ends at 1 s. The others are refused at 0.1 and come again at 1.1;
	// the third is refused then too, until 1.2, and comes again after 2 s.
	r := tools(run(t, setup(t, "deepsearch", calls...), "baseline"))
	wantACTs(t, r, 1, 2.1, 4.2)
	if s := r.Kinds["tool"]; s.Retries != 3 || s.Failed != 0 || s.ExecMean != (1000+1100+1200)/3. {
		t.Errorf("%+v", s)
	}
	// They hang for 600 s instead.
	wantACTs(t, tools(run(t, setup(t, "deepsearch", append(calls, "providers.page.overrun_error_ppm=0")...), "baseline")), 1, 602, 1204)
	// Errors within the limit: four tries with pauses of 1, 2 and 4 s, and that is it.
	r = tools(run(t, setup(t, "deepsearch", append(calls, "providers.page.error_ppm=1000000", "batch=1")...), "baseline"))
	wantACTs(t, r, 11)
	if s := r.Kinds["tool"]; s.Failed != 1 || s.Retries != 3 || s.OverheadMean != 7000 {
		t.Errorf("%+v", s)
	}
	// One call in each window of 5 s, whenever it ended.
	wantACTs(t, tools(run(t, setup(t, "deepsearch", append(calls, "providers.page.window=\"5s\"", "batch=2")...), "baseline")), 1, 8.3)
}

func TestCallsThatNeedSeveralProviders(t *testing.T) {
	browse := append(slices.Clone(calls), "tasks.deepsearch.tools.fetch.weight=0", "tasks.deepsearch.tools.browse.weight=1",
		"tasks.deepsearch.tools.browse.duration={\"fixed\":\"1s\"}", "providers.search.error_ppm=0",
		"providers.search.overrun_latency={\"fixed\":\"100ms\"}", "batch=2")
	// Three pages each, of five at a time.
	wantACTs(t, tools(run(t, setup(t, "deepsearch", append(browse, "providers.page.limit=5")...), "baseline")), 1, 2.1)
	wantACTs(t, tools(run(t, setup(t, "deepsearch", append(browse, "providers.page.limit=6")...), "baseline")), 1, 1)
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	s := setup(t, "coding", "batch=48", "nodes=2", "cores=16")
	s.Latency = DefaultLatency
	var texts []string
	for _, workers := range []int{1, 4} {
		r, err := Compare(t.Context(), s, nil, workers, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Errorf("%s\n%s", texts[0], texts[1])
	}
}

func TestASweepLeavesTheSetupAsItWas(t *testing.T) {
	s := setup(t, "coding", "nodes=1", "cores=16", "tasks.coding.turns={\"fixed\":2}")
	over, all := int64(0), int64(0)
	points, err := Sweep(t.Context(), s, "batch", []string{"2", "4"}, []string{"pod"}, 1, func(o, a int64) { over, all = o, a })
	if err != nil || len(points) != 2 || points[0].Policies["pod"].Trajectories != 2 || points[1].Policies["pod"].Actions != 12 || len(s.sets) != 2 {
		t.Errorf("%+v, %v", points, err)
	}
	if over != 6 || all != 6 {
		t.Errorf("progress ended at %d of %d", over, all)
	}
}

func TestWhatCannotRunSaysWhy(t *testing.T) {
	for _, c := range []struct{ workload, policy, want string }{
		{"coding", "best", "only rota"},
		{"coding", "fixed-0", "not a number of units"},
		{"coding", "static", "class edit needs"},
		{"mopd", "pod", "class logprob needs"},
		{"deepsearch", "static", "try policy baseline"},
	} {
		in, err := setup(t, c.workload, "batch=1").Input()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), in, c.policy); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s under %s: %v, want %q", c.workload, c.policy, err, c.want)
		}
	}
	s := setup(t, "coding")
	for _, set := range [][2]string{{"batch", "0"}, {"batch", "x"}, {"gone", "1"}, {"cores", "513"}} {
		if err := s.Set(set[0], set[1]); err == nil {
			t.Errorf("%v is accepted", set)
		}
	}
	if _, err := setup(t, "coding", "tasks.coding.gone=1").Input(); err == nil {
		t.Error("a figure that does not exist is accepted")
	}
	mopd := setup(t, "mopd")
	mopd.Sessions = []workload.Session{{Name: "a"}}
	if _, err := mopd.Input(); err == nil {
		t.Error("a trace of tools is replayed in a workload that has none")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, s, nil, 1, nil); err == nil {
		t.Error("a run that was broken off has a result")
	}
	// A tool that no node can hold is refused by the state machine.
	in := must(setup(t, "coding", "batch=1", "cores=4", "tool-width=8").Input())
	if _, err := Run(t.Context(), in, "rota"); err == nil || !strings.Contains(err.Error(), "8 cores") {
		t.Errorf("%v", err)
	}
}

func TestASeriesHoldsWhatTheRunDid(t *testing.T) {
	r := run(t, setup(t, "coding", rewardsOnly...), "fixed-4") // one after the other, 2 s each
	s := r.Series(4 * second)
	if len(s.ACT) != 2 || s.ACT[0] != 4*second || s.ACT[1] != -1 || s.Utilisation[0] != 1_000_000 || s.Utilisation[1] != 500_000 {
		t.Errorf("%+v", s)
	}
}

func TestATraceIsReplayed(t *testing.T) {
	s := setup(t, "coding", "batch=2", "nodes=1", "cores=4", "tool-width=2")
	s.Sessions = []workload.Session{{Name: "a", Turns: []workload.SessionTurn{
		{Turn: 0, Generate: second, Stop: "tool_use"}, {Turn: 1, Start: 5 * second, Gap: 4 * second, Generate: second, Stop: "end"},
	}}}
	s.Replay.SharePPM = 500_000
	r := run(t, s, "fixed-1")
	// Half of a gap of 4 s, for which the tool keeps two cores busy.
	if c := r.Classes["tool"]; c.Actions != 2 || c.ExecMean != 2000 {
		t.Errorf("%+v", r.Classes)
	}
}
