package lengths

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"rota/internal/sim/workload"
	"rota/sched/predict"
)

var quick = Setup{Folds: 5, Repeats: 1, Seed: 1, After: []int{0, 2, 8}, Bootstraps: 100}

func evaluate(t *testing.T, sessions []Session, s Setup) map[int]map[string]Result {
	t.Helper()
	results, err := Evaluate(t.Context(), sessions, s)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]map[string]Result{}
	for _, r := range results {
		if out[r.After] == nil {
			out[r.After] = map[string]Result{}
		}
		out[r.After][r.Predictor] = r
	}
	return out
}

// Where turns show how long a session is, each turn makes the prediction better, and it is better
// than those of the baselines. Least squares is none here: such sessions lie on a plane.
func TestPlantedStructureIsFound(t *testing.T) {
	sessions := Generate(Planted{Groups: 300, Samples: 1, Alike: 0.2, Within: 1, Shown: 0.9}, 3)
	r := evaluate(t, sessions, quick)
	for _, turns := range []int{2, 8} {
		rota := r[turns]["rota"]
		for name, other := range r[turns] {
			if name != "rota" && name != "least squares" && (rota.Pearson.Value < other.Pearson.Value+0.1 || rota.Recall20.Value < other.Recall20.Value+0.1) {
				t.Errorf("after %d turns, rota has %+v and %s %+v", turns, rota, name, other)
			}
		}
		// Where the plane errs little, the P90 of near examples is too high.
		if rota.WithinP50 < 0.4 || rota.WithinP50 > 0.65 || rota.WithinP90 < 0.83 {
			t.Errorf("after %d turns, %.2f are within the P50 and %.2f within the P90", turns, rota.WithinP50, rota.WithinP90)
		}
	}
	if before, after := r[0]["rota"], r[2]["rota"]; after.Pearson.Value < before.Pearson.Value+0.1 {
		t.Errorf("the prediction is %+v at first and %+v after 2 turns", before, after)
	}
}

// Where sessions of a group are alike and prompts show nothing, siblings tell.
func TestSiblingsTell(t *testing.T) {
	sessions := Generate(Planted{Groups: 60, Samples: 6, Alike: 1.5, Within: 0.3, Shown: 0}, 3)
	r := evaluate(t, sessions, quick)
	for _, turns := range quick.After {
		with, without := r[turns]["rota with siblings"], r[turns]["rota"]
		if with.Pearson.Value < without.Pearson.Value+0.1 || with.Recall20.Value < without.Recall20.Value {
			t.Errorf("after %d turns: %+v with siblings, %+v without", turns, with, without)
		}
	}
}

// Where nothing tells anything, nothing is found.
func TestNothingIsFoundInNoise(t *testing.T) {
	sessions := Generate(Planted{Groups: 300, Samples: 1, Alike: 1, Within: 0, Shown: 0}, 3)
	if r := evaluate(t, sessions, quick)[0]["rota"]; math.Abs(r.Pearson.Value) > 0.2 || r.Recall20.Value > 0.4 || r.Pearson.Low > 0.1 {
		t.Errorf("found in noise: %+v", r)
	}
}

func TestSameSeedSameResults(t *testing.T) {
	sessions := Generate(Planted{Groups: 20, Samples: 2, Alike: 1, Within: 1, Shown: 0.5}, 3)
	a, b := evaluate(t, sessions, quick), evaluate(t, sessions, quick)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives other results")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Evaluate(ctx, sessions, quick); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancellation: %v", err)
	}
}

func TestGroupsAreInOneFold(t *testing.T) {
	trace := []workload.Session{
		{Name: "a", Turns: []workload.SessionTurn{{InputTokens: 5, Output: 6, Stop: "end_turn"}, {InputTokens: 20, Output: 1, Gap: 3, Stop: "tool_use"}}},
		{Name: "b", Turns: []workload.SessionTurn{{InputTokens: 5, Output: 7}}},
		{Name: "c", Turns: []workload.SessionTurn{{InputTokens: 5, Output: 6}}},
	}
	s := FromTrace(trace)
	if s[0].Group != s[2].Group || s[0].Group == s[1].Group {
		t.Errorf("the groups are %d, %d and %d", s[0].Group, s[1].Group, s[2].Group)
	}
	if s[0].Total() != 7 || s[0].PromptTokens != 5 || s[0].Turns[0].FinishReason != "stop" || s[0].Turns[1].FinishReason != "tool_calls" || s[0].Turns[1].ToolNS != 3 || s[1].Turns[0].FinishReason != "" {
		t.Errorf("the sessions are %+v", s)
	}
}

// Least squares finds a plane, and says nothing where it saw no example.
func TestLeastSquares(t *testing.T) {
	var q squares
	session := func(prompt, tokens uint64) *Session {
		return &Session{PromptTokens: prompt, Turns: []predict.Report{{Turns: 1, OutputTokens: tokens, ContextTokens: prompt}}}
	}
	if _, ok := q.total(session(100, 100), 0); ok {
		t.Error("it predicts without an example")
	}
	for i := range 200 {
		n := uint64(1) << (6 + i%8)
		q.add(session(n, n*n))
	}
	if got, ok := q.total(session(1<<10, 1), 0); !ok || got < 0.9*(1<<20) || got > 1.1*(1<<20) {
		t.Errorf("predicted %g for the square of 1,024", got)
	}
	if _, ok := q.total(session(100, 100), 1); ok {
		t.Error("it predicts where no example went on")
	}
}

func TestMeasures(t *testing.T) {
	truth := []float64{10, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, c := range []struct {
		name            string
		guesses         []float64
		recall, pearson float64
	}{
		{"right", truth, 1, 1},
		{"twice as much", []float64{20, 2, 4, 6, 8, 10, 12, 14, 16, 18}, 1, 1},
		{"the reverse", []float64{1, 10, 9, 8, 7, 6, 5, 4, 3, 2}, 0, -1},
		{"all the same", make([]float64, 10), 0.2, 0},
		{"one of two, the other one of nine", []float64{1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0.5 + 0.5/9, 0.5222},
	} {
		if got := recall(c.guesses, truth, 0.2); math.Abs(got-c.recall) > 1e-9 {
			t.Errorf("%s: recall %g, must be %g", c.name, got, c.recall)
		}
		if got := pearson(c.guesses, truth); math.Abs(got-c.pearson) > 1e-4 {
			t.Errorf("%s: correlation %g, must be %g", c.name, got, c.pearson)
		}
	}
}

func TestSetupsThatCannotBe(t *testing.T) {
	sessions := Generate(Planted{Groups: 4, Samples: 1}, 1)
	for _, spoil := range []func(*Setup){
		func(s *Setup) { s.Folds = 1 }, func(s *Setup) { s.Folds = 5 }, func(s *Setup) { s.Repeats = 0 },
		func(s *Setup) { s.Bootstraps = 1 }, func(s *Setup) { s.After = []int{-1} },
	} {
		s := quick
		s.Folds = 2
		if spoil(&s); s.Check(sessions) == nil {
			t.Errorf("%+v passes", s)
		}
	}
	for _, p := range []Planted{{Groups: 1, Samples: 1}, {Groups: 2}, {Groups: 10_000, Samples: 100}, {Groups: 2, Samples: 1, Shown: math.NaN()}, {Groups: 2, Samples: 1, Within: 5}} {
		if p.Check() == nil {
			t.Errorf("%+v passes", p)
		}
	}
}

// TestTrace: on real sessions that it has not seen, rota predicts better than prompts and history
// after the first turns.
func TestTrace(t *testing.T) {
	folder := os.Getenv("ROTA_TRACES")
	if folder == "" {
		t.Skip("ROTA_TRACES does not name a folder with rollouts.csv")
	}
	file, err := os.Open(filepath.Join(folder, "rollouts.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	trace, err := workload.ReadSessions(file)
	if err != nil {
		t.Fatal(err)
	}
	for turns, r := range evaluate(t, FromTrace(trace), Setup{Folds: 10, Repeats: 3, Seed: 1, After: []int{2, 4}, Bootstraps: 100}) {
		rota, prompt, history := r["rota"], r["prompt"], r["history mean"]
		if rota.Recall20.Value <= max(prompt.Recall20.Value, history.Recall20.Value) || rota.Pearson.Value <= max(prompt.Pearson.Value, history.Pearson.Value) {
			t.Errorf("after %d turns, rota has %+v, prompts %+v and history %+v", turns, rota, prompt, history)
		}
	}
}
