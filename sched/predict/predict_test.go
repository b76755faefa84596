package predict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// run returns the trace of a trajectory that generates as much in each of its turns.
func run(c *state.LengthClass, prompt uint64, turns int, output uint64, s Siblings) state.LengthTrace {
	t := Begin(c, prompt, s)
	for range turns {
		t = Follow(c, &t, Report{Turns: 1, OutputTokens: output, ContextTokens: t.ContextTokens + output + 100, ToolNS: 5e9}, s)
	}
	return t
}

// taught returns a class that has learned each of some trajectories several times.
func taught(times int, of ...func(*state.LengthClass) state.LengthTrace) *state.LengthClass {
	c := &state.LengthClass{Policy: "p"}
	for range times {
		for _, trajectory := range of {
			t := trajectory(c)
			c = Learn(c, &t, false, c.LearnedAt+1)
		}
	}
	return c
}

func near10(got, want uint64) bool { return 10*got >= 9*want && 10*got <= 11*want }

func TestNothingWasLearned(t *testing.T) {
	for _, c := range []*state.LengthClass{nil, {Policy: "p"}} {
		r := run(c, 1000, 3, 100, Siblings{})
		q := Remaining(c, &r, Siblings{})
		if !near10(q.Tokens, 2048) || !near10(q.P50, 2048) || !near10(q.P90, 4*2048) || q.Turns != 8 {
			t.Errorf("predicted %+v", q)
		}
	}
}

func TestPromptsTellLengths(t *testing.T) {
	c := taught(20,
		func(c *state.LengthClass) state.LengthTrace { return run(c, 500, 3, 200, Siblings{}) },
		func(c *state.LengthClass) state.LengthTrace { return run(c, 30_000, 60, 200, Siblings{}) })
	short, long := Begin(c, 500, Siblings{}), Begin(c, 30_000, Siblings{})
	s, l := Remaining(c, &short, Siblings{}), Remaining(c, &long, Siblings{})
	if !near10(s.Tokens, 600) || s.Turns != 3 || !near10(l.Tokens, 12_000) || l.Turns < 55 || l.Turns > 65 {
		t.Errorf("predicted %+v for a short prompt and %+v for a long one", s, l)
	}
}

// After some turns a prediction is better than before.
func TestTurnsRefine(t *testing.T) {
	c := taught(20,
		func(c *state.LengthClass) state.LengthTrace { return run(c, 1000, 6, 50, Siblings{}) },
		func(c *state.LengthClass) state.LengthTrace { return run(c, 1000, 40, 800, Siblings{}) })
	first, later := Begin(c, 1000, Siblings{}), run(c, 1000, 2, 800, Siblings{})
	f, l := Remaining(c, &first, Siblings{}), Remaining(c, &later, Siblings{})
	if near10(f.Tokens, 32_000) || !near10(l.Tokens, 38*800) {
		t.Errorf("predicted %+v at first and %+v after 2 turns, of 32,000 tokens", f, l)
	}
}

// Between two stages the prediction goes from one to the other.
func TestBetweenStages(t *testing.T) {
	c := taught(20, func(c *state.LengthClass) state.LengthTrace { return run(c, 1000, 20, 100, Siblings{}) })
	last := uint64(1 << 40)
	for turns := range 16 {
		r := run(c, 1000, turns, 100, Siblings{})
		q := Remaining(c, &r, Siblings{})
		if q.Tokens > last || !near10(q.Tokens, uint64(20-turns)*100) && turns < 9 {
			t.Errorf("after %d turns of 20, predicted %+v; before it %d tokens", turns, q, last)
		}
		last = q.Tokens
	}
}

func TestSiblings(t *testing.T) {
	alike, apart := &state.LengthClass{Policy: "p"}, &state.LengthClass{Policy: "p"}
	for n := range 100 {
		turns := 2 << (n % 6)
		said := Siblings{3, uint64(turns) * 100}
		a := run(alike, 1000, turns, 100, said)
		alike = Learn(alike, &a, false, int64(n))
		b := run(apart, 1000, 2<<((n*5+2)%6), 100, said)
		apart = Learn(apart, &b, false, int64(n))
	}
	first := Begin(nil, 1000, Siblings{})
	said := Siblings{3, 6400}
	if q := Remaining(alike, &first, said); !near10(q.Tokens, 6400) || q.Turns < 50 {
		t.Errorf("where siblings are alike, predicted %+v", q)
	}
	without, with := Remaining(apart, &first, Siblings{}), Remaining(apart, &first, said)
	if with.Tokens > 3*without.Tokens {
		t.Errorf("where siblings are not alike, predicted %+v with them and %+v without", with, without)
	}
	past := run(nil, 1000, 100, 100, Siblings{})
	if q := Remaining(alike, &past, said); q.Tokens == 0 {
		t.Errorf("beyond what siblings generated, predicted %+v", q)
	}
}

// A trajectory that others ended teaches nothing, but that it was longer than predicted.
func TestCutOff(t *testing.T) {
	c := taught(20, func(c *state.LengthClass) state.LengthTrace { return run(c, 1000, 10, 100, Siblings{}) })
	short := run(c, 1000, 5, 100, Siblings{})
	if got := Learn(c, &short, true, 99); got != c {
		t.Error("a trajectory that was cut off before its predicted end taught something")
	}
	long := run(c, 1000, 50, 100, Siblings{})
	if got := Learn(c, &long, true, 99); got.Stages[0].Seen != c.Stages[0].Seen+1 {
		t.Error("a trajectory that was cut off beyond its predicted end taught nothing")
	}
	none := Begin(c, 1000, Siblings{})
	if got := Learn(c, &none, false, 99); got != c {
		t.Error("a trajectory without a turn taught something")
	}
}

func TestTheOldAreForgotten(t *testing.T) {
	c := taught(2*state.LengthExamplesMax, func(c *state.LengthClass) state.LengthTrace { return run(c, 1000, 50, 100, Siblings{}) })
	for n := range 3 * memory {
		r := run(c, 1000, 5, 100, Siblings{})
		c = Learn(c, &r, false, c.LearnedAt+int64(n))
	}
	first := Begin(c, 1000, Siblings{})
	if q := Remaining(c, &first, Siblings{}); !near10(q.P90, 500) || len(c.Stages[0].Examples) != state.LengthExamplesMax*state.LengthExampleBytes {
		t.Errorf("predicted %+v from %d bytes of examples", q, len(c.Stages[0].Examples))
	}
}

func TestFollow(t *testing.T) {
	two := []Report{{Turns: 1, OutputTokens: 100, ContextTokens: 1000, ToolNS: 0}, {Turns: 1, OutputTokens: 100, ContextTokens: 1600, ToolNS: 4e9, FinishReason: "stop", ToolFailed: true}}
	r := Begin(nil, 1000, Siblings{})
	for _, report := range two {
		r = Follow(nil, &r, report, Siblings{})
	}
	want := state.LengthTrace{PromptTokens: 1000, Turns: 2, OutputTokens: 200, LastOutputTokens: 100, ContextTokens: 1600, ToolResultTokens: 500, ResultTokens: 500, ToolNS: 4e9, Stopped: true, Failed: true}
	want.Marks = r.Marks
	if !reflect.DeepEqual(r, want) || len(r.Marks) != 3 {
		t.Errorf("the trace is %+v, must be %+v", r, want)
	}
	r = Follow(nil, &r, Report{Turns: 7, OutputTokens: 700, ContextTokens: 5800, ToolNS: 14e9}, Siblings{})
	if r.Turns != 9 || r.LastOutputTokens != 100 || r.ToolResultTokens != 500 || r.ToolNS != 2e9 || len(r.Marks) != 4 || r.Marks[3].Stage != 4 {
		t.Errorf("after a report of 7 turns the trace is %+v", r)
	}
	before := r
	if r = Follow(nil, &r, Report{OutputTokens: 5}, Siblings{}); r.OutputTokens != before.OutputTokens+5 || r.Turns != before.Turns {
		t.Errorf("after a report within a turn the trace is %+v", r)
	}
}

// world is a class with random trajectories.
type world struct{ c *state.LengthClass }

// draw draws a trajectory of the world, whatever it does.
func (w *world) draw(r *rapid.T) (state.LengthTrace, Siblings) {
	tokens := rapid.OneOf(rapid.Uint64Range(0, 100_000), rapid.Uint64())
	said := Siblings{rapid.Uint32Range(0, 9).Draw(r, "siblings"), tokens.Draw(r, "mean")}
	t := Begin(w.c, tokens.Draw(r, "prompt"), said)
	for range rapid.IntRange(0, 12).Draw(r, "reports") {
		old := fmt.Sprint(t)
		next := Follow(w.c, &t, Report{
			Turns: rapid.OneOf(rapid.Uint32Range(0, 9), rapid.Uint32()).Draw(r, "turns"), OutputTokens: tokens.Draw(r, "output"), ContextTokens: tokens.Draw(r, "context"),
			ToolNS: rapid.Int64().Draw(r, "tool"), FinishReason: rapid.SampledFrom([]string{"", "stop", "length"}).Draw(r, "finish"), ToolFailed: rapid.Bool().Draw(r, "failed"),
		}, said)
		if fmt.Sprint(t) != old {
			r.Fatalf("a report changed the trace before it from %s to %+v", old, t)
		}
		t = next
	}
	return t, said
}

// TestWhateverHappens: of any trajectories, traces are sound, quantiles are in order and the rows
// are what the state accepts. The same again gives the same.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := world{&state.LengthClass{Policy: "p"}}
		s := state.New()
		s.SetMeta(state.Meta{Settings: state.Settings{}.WithDefaults(), Level: state.LevelResizing, Now: 100})
		for n := range rapid.IntRange(0, 12).Draw(r, "trajectories") {
			trace, said := w.draw(r)
			if err := trace.Check(); err != nil {
				r.Fatal(err)
			}
			q := Remaining(w.c, &trace, said)
			if q.P50 > q.P90 {
				r.Fatalf("quantiles are %+v", q)
			}
			if again := Remaining(w.c, &trace, said); again != q {
				r.Fatalf("predicted %+v and then %+v", q, again)
			}
			cut := rapid.Bool().Draw(r, "cut")
			before := fmt.Sprint(*w.c)
			learned := Learn(w.c, &trace, cut, int64(n))
			if again := Learn(w.c, &trace, cut, int64(n)); !reflect.DeepEqual(again, learned) || fmt.Sprint(*w.c) != before {
				r.Fatalf("learned %+v and then %+v", learned, again)
			}
			if w.c = learned; w.c.Trajectories > 0 {
				s.PutLengthClass(w.c)
			}
			if err := s.Check(); err != nil {
				r.Fatal(err)
			}
		}
	})
}

// TestMonotone: if all of a class had generated more, more would be predicted. Only a plane
// through many can fall where another point rises.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		less, more := &state.LengthClass{Policy: "p"}, &state.LengthClass{Policy: "p"}
		for range rapid.IntRange(1, many-1).Draw(r, "trajectories") {
			prompt, tokens := rapid.Uint64Range(1, 10_000).Draw(r, "prompt"), rapid.Uint64Range(1, 10_000).Draw(r, "tokens")
			l, m := run(less, prompt, 1, tokens, Siblings{}), run(more, prompt, 1, tokens*rapid.Uint64Range(1, 4).Draw(r, "times"), Siblings{})
			less, more = Learn(less, &l, false, 1), Learn(more, &m, false, 1)
		}
		first := Begin(nil, rapid.Uint64Range(1, 10_000).Draw(r, "prompt"), Siblings{})
		l, m := Remaining(less, &first, Siblings{}), Remaining(more, &first, Siblings{})
		if l.Tokens > m.Tokens || l.P50 > m.P50 || l.P90 > m.P90 {
			r.Fatalf("predicted %+v, and %+v where all generated as much or more", l, m)
		}
		said := rapid.Uint32Range(1, 9).Draw(r, "siblings")
		few, many := Siblings{said, rapid.Uint64Range(0, 10_000).Draw(r, "mean")}, Siblings{said, 20_000}
		if a, b := Remaining(less, &first, few), Remaining(less, &first, many); a.Tokens > b.Tokens {
			r.Fatalf("predicted %+v with siblings of %d tokens, and %+v with 20,000", a, few.MeanTokens, b)
		}
	})
}

// TestThePlaneIsThatOfLeastSquares: after some examples the slopes are what was planted, also
// where features go together, and once the examples are replaced they are those of the new ones.
func TestThePlaneIsThatOfLeastSquares(t *testing.T) {
	var g state.LengthStage
	r := rand.New(rand.NewPCG(1, 2))
	learn := func(n int, slopes [3]int) {
		for range n {
			m := state.LengthMark{Turns: 0}
			y := 60
			m.Features[0] = uint8(40 + r.IntN(40))
			m.Features[1] = m.Features[0]/2 + uint8(r.IntN(20))
			m.Features[2] = uint8(r.IntN(30))
			for i, slope := range slopes {
				y += slope * int(m.Features[i]) / 4
			}
			add(&g, &m, uint64(state.LifetimeLeast(uint32(y))), 1)
		}
	}
	near := func(slopes [3]int) bool {
		for i, slope := range slopes {
			if d := g.Plane.Slopes[i] - int64(slope)*one/4; d < -one/10 || d > one/10 {
				return false
			}
		}
		return true
	}
	first, second := [3]int{4, -2, 1}, [3]int{1, 2, -1}
	if learn(200, first); !near(first) {
		t.Errorf("the slopes are %d, of %d quarters", g.Plane.Slopes, first)
	}
	if learn(8*memory, second); !near(second) {
		t.Errorf("after the examples were replaced the slopes are %d, of %d quarters", g.Plane.Slopes, second)
	}
}

// What is beyond all examples is predicted by the plane, as far as it errs less.
func TestThePlaneGoesOn(t *testing.T) {
	c := &state.LengthClass{Policy: "p"}
	for n := range 200 {
		prompt := uint64(100) << (n % 6)
		r := run(c, prompt, 1, 3*prompt, Siblings{})
		c = Learn(c, &r, false, int64(n))
	}
	first := Begin(c, 100<<9, Siblings{})
	if q := Remaining(c, &first, Siblings{}); q.Tokens < 3*100<<7 || q.Tokens > 3*100<<10 {
		t.Errorf("of a prompt of %d tokens, predicted %+v", 100<<9, q)
	}
}

func TestPositionsAndValues(t *testing.T) {
	for _, n := range []uint64{0, 1, 2, 7, 8, 9, 100, 2048, 12_345, 1 << 20, 1 << 39, 1<<40 - 1} {
		if got := value(position(n)); got != n && !(n > 256 && near10(got, n)) {
			t.Errorf("%d has position %d, which is %d", n, position(n), got)
		}
		if n > 0 && position(n) <= position(n-1) && n < 2048 {
			t.Errorf("%d is at %d and %d at %d", n-1, position(n-1), n, position(n))
		}
	}
	if value(-5) != 0 {
		t.Errorf("a negative position is %d", value(-5))
	}
}

// lengthsOf draws the tokens of the trajectories of a step: their logarithms are normal, an octave
// and a half wide.
func lengthsOf(r *rand.Rand, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(1600 * math.Exp2(1.5*r.NormFloat64()))
	}
	return out
}

// TestTheOrderOfEndsInAStepTeachesNothing: the longest trajectories of a step end last, and the
// next step's are predicted as if they had ended in any order.
func TestTheOrderOfEndsInAStepTeachesNothing(t *testing.T) {
	for _, trajectories := range []int{768, 1500} {
		for steps := 1; steps <= 4; steps *= 2 {
			c := &state.LengthClass{Policy: "p"}
			r := rand.New(rand.NewPCG(7, uint64(trajectories)))
			for range steps {
				step := lengthsOf(r, trajectories)
				slices.Sort(step)
				traces := make([]state.LengthTrace, len(step))
				for i := range traces { // all begin before one ends
					traces[i] = Begin(c, 1000, Siblings{})
				}
				for i, tokens := range step {
					end := Follow(c, &traces[i], Report{Turns: 1, OutputTokens: tokens, ContextTokens: 1000}, Siblings{})
					c = Learn(c, &end, false, 1)
				}
			}
			first := Begin(c, 1000, Siblings{})
			q := Remaining(c, &first, Siblings{})
			if q.Tokens < 1600*3/4 || q.Tokens > 1600*4/3 || q.P50 < 1600*3/4 || q.P50 > 1600*4/3 || q.P90 < 6070*2/3 || q.P90 > 6070*3/2 {
				t.Errorf("after %d steps of %d trajectories, predicted %+v, of a median of 1600 and a 90th percentile of 6070", steps, trajectories, q)
			}
		}
	}
}

// TestExamplesAreASample: of as many as a stage represents, each is kept with the same chance; of
// many more, old ones seldom.
func TestExamplesAreASample(t *testing.T) {
	var at [state.LengthExamplesMax]uint64
	for n := range uint64(20 * memory) {
		if i := place(n); i < len(at) {
			at[i] = n
		}
		if n+1 != memory && n+1 != 20*memory {
			continue
		}
		var parts [4]int // of the last examples, the oldest first
		for _, m := range at {
			if age := n - m; age < memory {
				parts[3-age*4/memory]++
			}
		}
		for i, part := range parts {
			if n+1 == memory && (part < 40 || part > 90) || n+1 > memory && i == 3 && part < 35 {
				t.Errorf("after %d examples, from the last four quarters of %d there are %d", n+1, memory, parts)
			}
		}
		if kept := parts[0] + parts[1] + parts[2] + parts[3]; n+1 > memory && (kept < 130 || kept > 195) {
			t.Errorf("after %d examples, %d are of the last %d", n+1, kept, memory)
		}
	}
}
