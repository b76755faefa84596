package rollouts

import (
	"context"
	"slices"
	"testing"

	"rota/fsm/state"
)

// small is a setup that takes milliseconds.
func small() Setup {
	s := Default()
	s.Task, s.Workers, s.Batch, s.Group, s.Steps = "math", 2, 8, 4, 2
	return s
}

func policy(t *testing.T, name string) Policy {
	t.Helper()
	p, err := Find([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return p[0]
}

func run1(t *testing.T, s Setup, name string) []*StepResult {
	t.Helper()
	steps, err := Run(context.Background(), s, policy(t, name))
	if err != nil {
		t.Fatal(name, err)
	}
	return steps
}

// TestAllPoliciesGenerateTheSame: every trajectory ends under every policy, and tokens add up.
func TestAllPoliciesGenerateTheSame(t *testing.T) {
	for _, transfer := range []int64{0, 1} {
		s := small()
		s.Transfer = transfer
		var want []int64
		for n := range s.Steps {
			sum := int64(0)
			for _, tr := range s.step(n) {
				sum += tr.Output()
			}
			want = append(want, sum)
		}
		for _, p := range Policies() {
			for n, r := range run1(t, s, p.Name) {
				if r.OutputTokens != want[n] || int64(len(r.completions)) != s.trajectories() {
					t.Errorf("%s, step %d: %d tokens of %d trajectories, want %d of %d", p.Name, n, r.OutputTokens, len(r.completions), want[n], s.trajectories())
				}
				if r.RecomputedTokens > r.PromptTokens || r.Copies > r.Moves || r.CompletionMeanNS > r.CompletionP99NS || r.CompletionP99NS > r.MakespanNS || r.BusyPPM > million {
					t.Errorf("%s, step %d: %+v", p.Name, n, r)
				}
				gpus := int64(0)
				for _, degree := range r.Degrees {
					gpus += degree
				}
				if gpus > s.gpus() || transfer == 0 && r.Copies > 0 {
					t.Errorf("%s, step %d: %d GPUs of %d, %d copies", p.Name, n, gpus, s.gpus(), r.Copies)
				}
			}
		}
	}
}

// TestOneTrajectoryTakesWhatTheProfileSays: alone on a worker, two turns take the steps that can
// be computed by hand, and the tool.
func TestOneTrajectoryTakesWhatTheProfileSays(t *testing.T) {
	s := small()
	s.Workers, s.Batch, s.Group = 1, 1, 1
	one := []Trajectory{{Prompt: 100, Turns: []Turn{{Output: 3, ToolTokens: 10, ToolNS: second}, {Output: 2}}}}
	p, err := profileOf(s.Model, 1)
	if err != nil {
		t.Fatal(err)
	}
	step := p.StepPS(1)
	prefill := func(tokens, after int64) int64 {
		return step + tokens*p.PrefillTokenPS + (tokens*after+tokens*(tokens-1)/2)*p.PrefillPairPS
	}
	// The first token comes with the prompt; the others each read what is there. The second turn
	// computes the tool's result, and the last token before it, which has no KV entry yet.
	first := prefill(100, 0) + 2*step + p.KVReadPS*(101+102)
	again := prefill(10, 103) + step + p.KVReadPS*114
	want := (first+again)/1000 + second
	for _, name := range append(Baselines(), "rota") {
		pol := policy(t, name)
		r, err := runStep(context.Background(), &s, &pol, one, newLearner(&s))
		if err != nil {
			t.Fatal(err)
		}
		if d := r.MakespanNS - want; d < -2 || d > 2 {
			t.Errorf("%s: %d ns, want %d", name, r.MakespanNS, want)
		}
		if r.PromptTokens != 110 || r.RecomputedTokens != 0 || r.queueNS != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestRoutes(t *testing.T) {
	// Worker 1 has the fewest requests, and 0 the most.
	even, uneven := []int{4, 2, 3}, []int{40, 2, 3}
	at := func(worker int) *run {
		return &run{Trajectory: &Trajectory{Group: 1}, id: 5, worker: worker, target: 2}
	}
	for _, c := range []struct {
		what     string
		route    routing
		requests []int
		run      *run
		siblings int
		want     int
	}{
		{"in turn", pinned, even, at(-1), -1, 2},
		{"the fewest", leastRequests, even, at(0), -1, 1},
		{"its own prefix", cacheAware, even, at(0), 2, 0},
		{"the prefix of siblings", cacheAware, even, at(-1), 2, 2},
		{"no prefix", cacheAware, even, at(-1), -1, 1},
		{"a prefix, but uneven load", cacheAware, uneven, at(0), 2, 1},
		{"it stays", stickyLeast, uneven, at(0), -1, 0},
		{"it begins", stickyLeast, uneven, at(-1), -1, 1},
		{"as planned", planned, uneven, at(0), -1, 2},
	} {
		w := &world{policy: &Policy{routing: c.route}, siblings: []int{-1, c.siblings}}
		for i, n := range c.requests {
			w.workers = append(w.workers, &worker{w: w, id: i, requests: n})
		}
		if got := w.route(c.run); got != c.want {
			t.Errorf("%s: worker %d, want %d", c.what, got, c.want)
		}
	}
}

func TestPriorities(t *testing.T) {
	of := func(o ordering, r run) int64 { return (&world{policy: &Policy{ordering: o}}).priority(&r) }
	if of(fcfs, run{attained: 9}) != of(fcfs, run{predicted: 9}) {
		t.Error("first come, first served has priorities")
	}
	for _, c := range [][3]int64{{0, 1, 1}, {1, 2, 1}, {2, 3, 0}, {3, 4, 1}, {1000, 1023, 0}, {1000, 1024, 1}} {
		if higher := of(leastAttained, run{attained: c[0]}) - of(leastAttained, run{attained: c[1]}); higher != c[2] {
			t.Errorf("%d tokens attained are %d levels above %d, want %d", c[0], higher, c[1], c[2])
		}
	}
	if of(longestFirst, run{predicted: 20_000}) <= of(longestFirst, run{predicted: 1_000}) {
		t.Error("the longest does not go first")
	}
}

// TestCopiesShareNoWorker: of four copies that are asked for, the longest begin that share no
// worker with others, and the rest follow.
func TestCopiesShareNoWorker(t *testing.T) {
	s := small()
	s.Workers = 4
	p := policy(t, "rota-no-degrees")
	w := &world{ctx: context.Background(), setup: &s, policy: &p, learned: newLearner(&s), result: &StepResult{}}
	for i := range 4 {
		w.runs = append(w.runs, &run{Trajectory: &Trajectory{Prompt: 1000, Turns: []Turn{{Output: 1}}}, id: i, context: 1000, predicted: int64(10 * (i + 1)), worker: i, tool: true})
	}
	w.learned.begin(1)
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	m := w.plan.mover
	running := func() (out []state.TrajectoryID) {
		for _, g := range m.running {
			out = append(out, g.Trajectory)
		}
		return out
	}
	m.ask(w.runs[0], 1) // begins at once, as no other was asked for
	m.ask(w.runs[1], 2)
	m.ask(w.runs[2], 3)
	m.ask(w.runs[3], 2)
	if got := running(); !slices.Equal(got, []state.TrajectoryID{1, 3}) {
		t.Fatalf("running %v: want 1, and 3 from worker 2 to 3", got)
	}
	if m.abandon(w.runs[2]) || !m.abandon(w.runs[1]) {
		t.Error("only a copy that waits can be abandoned")
	}
	w.runs[3].tool = true
	w.loop.Run(10 * second)
	if got := w.result.Copies; got != 3 || len(m.running)+len(m.queued) != 0 {
		t.Errorf("%d copies were made, %d run, %d wait", got, len(m.running), len(m.queued))
	}
	if w.runs[3].worker != 2 || w.runs[0].worker != 1 || w.runs[1].worker != 1 {
		t.Errorf("trajectories are at %d, %d and %d", w.runs[0].worker, w.runs[1].worker, w.runs[3].worker)
	}
}

// planted is a task in which the prompt says which trajectories are long, and of them there are a
// few: what rota is for.
func planted() Setup {
	s := Default()
	s.Group, s.Batch, s.Workers, s.Steps, s.Siblings = 4, 64, 8, 3, 100
	for i := range 64 {
		tr := Trajectory{Prompt: 100, Turns: []Turn{{Output: 100, ToolTokens: 10, ToolNS: second}, {Output: 200}}}
		if i >= 62 {
			tr.Prompt, tr.Turns = 4000, nil
			for range 20 {
				tr.Turns = append(tr.Turns, Turn{Output: 1500, ToolTokens: 50, ToolNS: second})
			}
			tr.Turns[19].ToolTokens, tr.Turns[19].ToolNS = 0, 0
		}
		s.Pool = append(s.Pool, tr)
	}
	return s
}

// TestRotaWinsWhereItMust: with a few long trajectories that the prompt tells apart, rota is at
// least a fifth faster than each baseline, once it has learned that.
func TestRotaWinsWhereItMust(t *testing.T) {
	s := planted()
	of := func(name string) float64 {
		steps := run1(t, s, name)
		return steps[len(steps)-1].TokensPerSecond()
	}
	rota := of("rota")
	for _, name := range Baselines() {
		if other := of(name); rota < 1.2*other {
			t.Errorf("rota generates %.0f tokens/s, %s %.0f", rota, name, other)
		}
	}
}

// TestRedundantTrajectoriesAreAborted: with slow and stopped environments, each group takes its
// first samples, and a step ends no later than without redundant ones.
func TestRedundantTrajectoriesAreAborted(t *testing.T) {
	s := small()
	s.Steps, s.Skew, s.Slow, s.Stopped = 1, 20, 10, 10
	for _, name := range []string{"rota", "rota-preemption", "least-load"} {
		s.Redundant = 0
		without := run1(t, s, name)[0]
		s.Redundant = 2
		with := run1(t, s, name)[0]
		groups := s.trajectories() / s.Group
		if with.Aborted != 2*groups || without.Aborted != 0 || int64(len(with.completions)) != s.trajectories() {
			t.Errorf("%s: %d aborted and %d completed of %d groups", name, with.Aborted, len(with.completions), groups)
		}
		if with.MakespanNS > without.MakespanNS*9/10 {
			t.Errorf("%s: a step takes %d ns with redundant trajectories, %d without", name, with.MakespanNS, without.MakespanNS)
		}
	}
}

func TestFaults(t *testing.T) {
	s := small()
	turns := []Turn{{ToolNS: 3}, {ToolNS: 4}, {}}
	of := func(slow, stopped int64) []Turn {
		s.Slow, s.Stopped = slow, stopped
		return s.faulty([]Trajectory{{Turns: turns}}, 0)[0].Turns
	}
	if got := of(0, 0); got[0].ToolNS != 3 || got[1].ToolNS != 4 {
		t.Error(got)
	}
	if got := of(100, 0); got[0].ToolNS != 30 || got[1].ToolNS != 40 {
		t.Error(got)
	}
	// Where it stops is drawn: in the first call, or in the second, before which the first is
	// repeated.
	if got := of(0, 100); got[0].ToolNS+got[1].ToolNS != stopNoticedNS+7 && got[1].ToolNS != stopNoticedNS+4+3 {
		t.Error(got)
	}
	if turns[0].ToolNS != 3 || turns[1].ToolNS != 4 {
		t.Error("the trajectories of a trace have changed")
	}
}
