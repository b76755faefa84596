package workload

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fingerprints pin what seed 1 makes of the files: on every machine the same,
// and not to be changed after a policy has run on them without saying so in
// the evaluation.
var fingerprints = map[string]string{
	"coding":          "f730bcec2643436b",
	"deepsearch":      "d26002fd0a924eca",
	"mopd":            "f4e263b40f5c5a05",
	"mopd+deepsearch": "4d15c569149d506a",
}

func fingerprint(g *Generator) string {
	h := fnv.New64a()
	var t Trajectory
	for i := range g.Len() {
		g.Fill(&t, i)
		fmt.Fprintln(h, t.Task, t.Step, t.Start, t.Number, t.Group, t.Memory)
		for _, turn := range t.Turns {
			a := &turn.Action
			fmt.Fprintln(h, turn.Think, a.Kind, a.Class, a.Cost, a.Single, a.Profiled, a.Curve, a.Service)
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func TestASeedMakesTheSameEverywhere(t *testing.T) {
	for _, name := range Names() {
		p := load(t, name)
		p.SetBatch(100)
		got := fingerprint(generator(t, p, 1))
		if again := fingerprint(generator(t, load(t, name, Override{"tasks.0.batch", "100"}, Override{fmt.Sprintf("tasks.%d.batch", len(p.Tasks)-1), "100"}), 1)); again != got {
			t.Errorf("%s: %s, then %s", name, got, again)
		}
		if want := fingerprints[name]; got != want {
			t.Errorf("%s: fingerprint %s, pinned %s", name, got, want)
		}
		if other := fingerprint(generator(t, p, 2)); other == got {
			t.Errorf("%s: another seed makes the same", name)
		}
	}
}

// turnsOf lists what a trajectory does, without what only says where it stands.
func turnsOf(t Trajectory) []string {
	var out []string
	for _, turn := range t.Turns {
		a := turn.Action
		a.Key = Key{}
		out = append(out, fmt.Sprintf("%d %+v", turn.Think, a))
	}
	return out
}

func TestTrajectoriesCanBeMadeInAnyOrder(t *testing.T) {
	p := load(t, "mopd+deepsearch")
	p.SetBatch(20)
	p.SetSteps(2)
	g := generator(t, p, 7)
	var reused Trajectory
	count := make(map[string]int)
	for i := range g.Len() {
		g.Fill(&reused, i)
		if one := generator(t, p, 7).Trajectory(i); !reflect.DeepEqual(one.Turns, reused.Turns) || one.Start != reused.Start {
			t.Fatalf("trajectory %d differs", i)
		}
		count[fmt.Sprint(reused.Task, reused.Step)]++
	}
	if len(count) != 4 || count["mopd0"] != 20 || count["deepsearch1"] != 20 {
		t.Errorf("trajectories %v", count)
	}
}

func TestOtherParametersLeaveTheLuck(t *testing.T) {
	p := load(t, "coding")
	p.SetBatch(64)
	base := generator(t, p, 3)
	for _, c := range []struct {
		name   string
		change []Override
		// same says whether a turn must be as it was.
		same func(turn, turns int) bool
	}{
		{"batch", []Override{{"tasks.coding.batch", "512"}}, func(int, int) bool { return true }},
		{"steps", []Override{{"tasks.coding.steps", "4"}}, func(int, int) bool { return true }},
		{"memory", []Override{{"tasks.coding.memory", `{"fixed": 1}`}}, func(int, int) bool { return true }},
		{"turns", []Override{{"tasks.coding.turns", `{"uniform": [60, 90]}`}}, func(turn, turns int) bool { return turn < turns-1 }},
		{"curve", []Override{{"tasks.coding.rewards.pytest.serial_ppm", `{"fixed": 300000}`}}, func(turn, turns int) bool { return turn < turns-1 }},
		{"reward", []Override{{"tasks.coding.rewards.pytest.duration", `{"fixed": "1s"}`}}, func(turn, turns int) bool { return turn < turns-1 }},
	} {
		p := load(t, "coding", append([]Override{{"tasks.coding.batch", "64"}}, c.change...)...)
		g := generator(t, p, 3)
		for i := range 64 {
			was, is := turnsOf(base.Trajectory(i)), turnsOf(g.Trajectory(i))
			for turn := range was {
				if c.same(turn, len(was)) && was[turn] != is[turn] {
					t.Fatalf("%s: trajectory %d, turn %d: was %s, is %s", c.name, i, turn, was[turn], is[turn])
				}
			}
		}
	}
	// A class's own duration is nobody else's business.
	g := generator(t, load(t, "coding", Override{"tasks.coding.batch", "64"}, Override{"tasks.coding.tools.edit.duration", `{"fixed": "9ms"}`}), 3)
	for i := range 64 {
		was, is := base.Trajectory(i), g.Trajectory(i)
		for j := range was.Turns {
			a, b := was.Turns[j].Action, is.Turns[j].Action
			if a.Class != b.Class || a.Class != "edit" && a.Single != b.Single || was.Turns[j].Think != is.Turns[j].Think {
				t.Fatalf("trajectory %d, turn %d: %+v became %+v", i, j, a, b)
			}
		}
	}
}

func TestAGroupSharesItsReward(t *testing.T) {
	p := load(t, "coding")
	p.SetBatch(64)
	g := generator(t, p, 5)
	bases, truths := make(map[int64]bool), make(map[int64]bool)
	for i := range g.Len() {
		tr := g.Trajectory(i)
		a := tr.Turns[len(tr.Turns)-1].Action
		if tr.Group != i/8 || a.Kind != Reward || a.Profiled == 0 {
			t.Fatalf("trajectory %d: group %d, %+v", i, tr.Group, a)
		}
		bases[a.Profiled], truths[a.Single] = true, true
	}
	if len(bases) != 8 || len(truths) != 64 {
		t.Errorf("%d profiles and %d durations in 8 groups of 8", len(bases), len(truths))
	}
}

func TestWhatIsGeneratedIsWithinBounds(t *testing.T) {
	generators := make(map[string]*Generator)
	for _, name := range Names() {
		generators[name] = generator(t, load(t, name), 11)
	}
	rapid.Check(t, func(t *rapid.T) {
		g := generators[rapid.SampledFrom(Names()).Draw(t, "workload")]
		tr := g.Trajectory(rapid.IntRange(0, g.Len()-1).Draw(t, "trajectory"))
		task := g.Params().Task(tr.Task)
		if int64(tr.Number) >= int64(task.Batch.Value) || len(tr.Turns) == 0 || tr.Start > task.Start.Value.Max() || tr.Memory < task.Memory.Value.Min() {
			t.Fatalf("%+v", tr)
		}
		for i, turn := range tr.Turns {
			a := &turn.Action
			if turn.Think < 0 || a.Single < 1 || a.Key.At&(turnsMax-1) != int64(i) || (a.Kind == Reward) != (i == len(tr.Turns)-1) {
				t.Fatalf("turn %d: %+v", i, turn)
			}
			if gpu := a.Cost[0].Resource == "gpu"; gpu != (a.Service != "") || gpu && g.Params().Service(a.Service) == nil {
				t.Fatalf("turn %d: service %q of %+v", i, a.Service, a)
			}
			last := int64(-1)
			for w := int64(1); w <= 64; w++ {
				units := a.Widest(w)
				d := a.Duration(units)
				if units < a.Cost[0].Min || units > a.Cost[0].Max || d < 1 || last >= 0 && d > last {
					t.Fatalf("turn %d at width %d: %d units take %d, after %d", i, w, units, d, last)
				}
				last = d
			}
		}
	})
}

func TestTriesOfACall(t *testing.T) {
	g := generator(t, load(t, "deepsearch"), 1)
	seen := make(map[Try]bool)
	failed, n := 0, 0
	for i := range 500 {
		tr := g.Trajectory(i)
		a := &tr.Turns[0].Action
		for k := range 4 {
			try := g.Try(a, k)
			if try != g.Try(a, k) || try.Latency < 1 || try.Luck >= million || try.Overrun >= million || try.Refusal < 50_000_000 || try.Refusal > 500_000_000 {
				t.Fatalf("%+v", try)
			}
			if k == 0 && try.Latency != a.Single {
				t.Fatalf("the first try takes %d, the action %d", try.Latency, a.Single)
			}
			if try.Luck < 500_000 {
				failed++
			}
			seen[try] = true
			n++
		}
	}
	if len(seen) != n || failed < n*45/100 || failed > n*55/100 {
		t.Errorf("%d different tries of %d, %d of them below half", len(seen), n, failed)
	}
}

func TestBrowsingNeedsTwoQuotas(t *testing.T) {
	g := generator(t, load(t, "deepsearch"), 1)
	for i := range g.Len() {
		tr := g.Trajectory(i)
		for j := range tr.Turns {
			a := &tr.Turns[j].Action
			if a.Class != "browse" {
				continue
			}
			if len(a.Cost) != 2 || a.Cost[1].Resource != "quota:page" || a.Cost[1].Min != 3 || a.Elastic() {
				t.Fatalf("%+v", a)
			}
			return
		}
	}
	t.Error("nobody browses")
}

func TestTeachersAreServices(t *testing.T) {
	g := generator(t, load(t, "mopd"), 1)
	count := make(map[string]int)
	for i := range g.Len() {
		a := g.Trajectory(i).Turns[0].Action
		if a.Class != "logprob:"+a.Service || !strings.HasPrefix(a.Service, "teacher-") {
			t.Fatalf("%+v", a)
		}
		count[a.Service]++
	}
	if len(count) != 9 || count["teacher-1"] < count["teacher-9"]*2 {
		t.Errorf("teachers %v", count)
	}
}

func BenchmarkMillionActions(b *testing.B) {
	p := load(b, "coding")
	p.SetBatch(25_000)
	g := generator(b, p, 1)
	for b.Loop() {
		var t Trajectory
		actions := 0
		for i := range g.Len() {
			g.Fill(&t, i)
			actions += len(t.Turns)
		}
		if actions < million {
			b.Fatal(actions)
		}
	}
}
