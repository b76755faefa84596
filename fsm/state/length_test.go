package state

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// lengths is a class that has learned two trajectories.
func lengths(policy, name string, at int64) *LengthClass {
	plane := func(n, value uint64) (p LengthPlane) {
		p.Y = n * value
		for i := range p.X {
			p.X[i] = n * value
		}
		return p
	}
	return &LengthClass{
		Policy: policy, Name: name, LearnedAt: at, Trajectories: 2,
		Stages: []LengthStage{
			{Seen: 2, Examples: bytes.Repeat([]byte{7}, 2*LengthExampleBytes), Error: 9, NearError: 8, PlaneError: 7, SiblingsSeen: 1, SiblingError: 4, Plane: plane(2, 7)},
			{Seen: 1, Examples: bytes.Repeat([]byte{8}, LengthExampleBytes), Plane: plane(1, 8)},
		},
	}
}

// withLengths is a state that may have classes of lengths.
func withLengths() *State {
	s := sample()
	m := *s.Meta()
	m.Level = LevelResizing
	s.SetMeta(m)
	return s
}

func TestLengthStages(t *testing.T) {
	for _, c := range []struct {
		turns uint32
		stage int
	}{{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {7, 3}, {8, 4}, {127, 7}, {128, 8}, {1 << 31, 8}} {
		if got := LengthStageOf(c.turns); got != c.stage {
			t.Errorf("%d turns are stage %d, must be %d", c.turns, got, c.stage)
		}
	}
	for stage := range LengthStages {
		if got := LengthStageOf(LengthStageTurns(stage)); got != stage {
			t.Errorf("stage %d begins with %d turns, which are stage %d", stage, LengthStageTurns(stage), got)
		}
	}
}

func TestLengthClassesAreFoundByBothNames(t *testing.T) {
	s := withLengths()
	for _, names := range [][2]string{{"p", "qr"}, {"pq", "r"}, {"pqr", ""}} {
		s.PutLengthClass(lengths(names[0], names[1], 1))
	}
	if n := s.LengthClassCount(); n != 3 {
		t.Fatalf("three classes are %d", n)
	}
	if c := s.LengthClass("pq", "r"); c == nil || c.Policy != "pq" || c.Name != "r" {
		t.Errorf("found %+v", c)
	}
	if c := s.LengthClass("p", "q"); c != nil {
		t.Errorf("found %+v", c)
	}
	s.DeleteLengthClass("pq", "r")
	if c := s.LengthClass("pq", "r"); c != nil || s.LengthClassCount() != 2 {
		t.Errorf("after it was deleted there is %+v", c)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestStalestLengthClass(t *testing.T) {
	s := withLengths()
	if c := s.StalestLengthClass(); c != nil {
		t.Fatalf("of no classes, the stalest is %+v", c)
	}
	s.PutLengthClass(lengths("p", "b", 3))
	s.PutLengthClass(lengths("p", "a", 2))
	if c := s.StalestLengthClass(); c.Name != "a" {
		t.Errorf("class %q learned longest ago", c.Name)
	}
	s.PutLengthClass(lengths("p", "a", 4))
	if c := s.StalestLengthClass(); c.Name != "b" {
		t.Errorf("after a learned again, class %q learned longest ago", c.Name)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestLengthsAreHashedAndSaved(t *testing.T) {
	s := withLengths()
	before := s.Hash()
	s.PutLengthClass(lengths("p", "c", 5))
	if s.Hash() == before {
		t.Error("a class of lengths is not part of the hash")
	}
	var buf bytes.Buffer
	if err := s.Save(&buf); err != nil {
		t.Fatal(err)
	}
	r, err := Restore(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r.LengthClass("p", "c"), s.LengthClass("p", "c")) || r.Hash() != s.Hash() {
		t.Errorf("restored %+v", r.LengthClass("p", "c"))
	}
}

func TestLengthsAreChecked(t *testing.T) {
	for _, c := range []struct {
		wants string
		spoil func(*LengthClass)
	}{
		{"stage 0", func(r *LengthClass) { r.Stages[0].Seen++ }},
		{"stage 1", func(r *LengthClass) { r.Stages[1].Examples = r.Stages[1].Examples[1:] }},
		{"stage 1", func(r *LengthClass) { r.Stages[1].SiblingsSeen = 2 }},
		{"stage 0", func(r *LengthClass) { r.Trajectories = 1 }},
		{"stage 0", func(r *LengthClass) { r.Stages[0].Error = 1 << 40 }},
		{"stage 1", func(r *LengthClass) { r.Stages[1].SiblingError = 1 }},
		{"stage 1", func(r *LengthClass) { r.Stages[1].PlaneError = 1 << 40 }},
		{"stage 1", func(r *LengthClass) { r.Stages[1].Plane.X[3]++ }},
		{"stage 0", func(r *LengthClass) { r.Stages[0].Plane.Y-- }},
		{"10 stages", func(r *LengthClass) { r.Stages = make([]LengthStage, 10) }},
		{"the last at 8 ns", func(r *LengthClass) { r.LearnedAt = 8 }},
		{"stages", func(r *LengthClass) { r.Policy = "" }},
		{"stages", func(r *LengthClass) { r.Name = strings.Repeat("x", 129) }},
	} {
		s, r := withLengths(), lengths("p", "c", 5)
		s.PutLengthClass(r)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.DeleteLengthClass("p", "c")
		c.spoil(r)
		s.PutLengthClass(r)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("Check says %v, want something with %q", err, c.wants)
		}
	}
	s := withLengths()
	for i := range LengthClassesMax + 1 {
		s.PutLengthClass(lengths("p", fmt.Sprint(i), 1))
	}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "there are 513 classes of lengths") {
		t.Errorf("of too many classes, Check says %v", err)
	}
	s = sample()
	s.PutLengthClass(lengths("p", "c", 5))
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "level 2 is active") {
		t.Errorf("before their level, Check says %v", err)
	}
}

func TestLengthTracesAreChecked(t *testing.T) {
	good := func() LengthTrace {
		return LengthTrace{PromptTokens: 5, Turns: 3, OutputTokens: 30, Marks: []LengthMark{{Guess: 4}, {Stage: 1, Turns: 1, OutputTokens: 10}, {Stage: 2, Turns: 3, OutputTokens: 30}}}
	}
	if r := good(); r.Check() != nil {
		t.Fatal(r.Check())
	}
	for i, spoil := range []func(*LengthTrace){
		func(r *LengthTrace) { r.OutputTokens = 1 << 41 },
		func(r *LengthTrace) { r.ToolNS = -1 },
		func(r *LengthTrace) { r.Marks[1].Stage = 0 },
		func(r *LengthTrace) { r.Marks[2].Stage = 3 },
		func(r *LengthTrace) { r.Turns = 2 },
		func(r *LengthTrace) { r.Marks[2].OutputTokens = 31 },
		func(r *LengthTrace) { r.Marks[0].Guess = 1 << 16 },
		func(r *LengthTrace) { r.Marks[0].Plane = 1 << 16 },
		func(r *LengthTrace) { r.Marks = make([]LengthMark, 10) },
	} {
		r := good()
		if spoil(&r); r.Check() == nil {
			t.Errorf("trace %d passes: %+v", i, r)
		}
	}
}

// drawTrace draws a trace of any content.
func drawTrace(r *rapid.T) LengthTrace {
	t := LengthTrace{
		PromptTokens: rapid.Uint64().Draw(r, "prompt"), Turns: rapid.Uint32().Draw(r, "turns"), OutputTokens: rapid.Uint64().Draw(r, "output"),
		LastOutputTokens: rapid.Uint64().Draw(r, "last"), ContextTokens: rapid.Uint64().Draw(r, "context"), ToolResultTokens: rapid.Uint64().Draw(r, "result"),
		ToolNS: rapid.Int64().Draw(r, "tool"), Stopped: rapid.Bool().Draw(r, "stopped"), Failed: rapid.Bool().Draw(r, "failed"),
	}
	for range rapid.IntRange(0, LengthStages).Draw(r, "marks") {
		m := LengthMark{Stage: rapid.Uint8().Draw(r, "stage"), Turns: rapid.Uint32().Draw(r, "mark turns"), OutputTokens: rapid.Uint64().Draw(r, "mark output"),
			Guess: rapid.Uint32().Draw(r, "guess"), Near: rapid.Uint32().Draw(r, "near"), Plane: rapid.Uint32().Draw(r, "plane"), Siblings: rapid.Uint32().Draw(r, "siblings"), SiblingGuess: rapid.Uint32().Draw(r, "sibling guess")}
		copy(m.Features[:], rapid.SliceOfN(rapid.Uint8(), LengthFeatures, LengthFeatures).Draw(r, "features"))
		t.Marks = append(t.Marks, m)
	}
	return t
}

func TestLengthTraceRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := drawTrace(r)
		e := codec{}
		want.code(&e)
		var got LengthTrace
		d := codec{buf: e.buf, decoding: true}
		if got.code(&d); d.err != nil || len(d.buf) > 0 || !reflect.DeepEqual(got, want) {
			r.Fatalf("decoded %+v from %+v, error %v", got, want, d.err)
		}
	})
}

// FuzzLengthTrace: a trace that decodes encodes to the same bytes.
func FuzzLengthTrace(f *testing.F) {
	e := codec{}
	(&LengthTrace{PromptTokens: 500, Turns: 1, ToolNS: 5, Marks: []LengthMark{{Stage: 1, Turns: 1}}}).code(&e)
	f.Add(e.buf)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r LengthTrace
		d := codec{buf: data, decoding: true}
		if r.code(&d); d.err != nil || len(d.buf) > 0 {
			return
		}
		e := codec{}
		if r.code(&e); !bytes.Equal(e.buf, data) {
			t.Fatalf("decoded from %x, encodes to %x", data, e.buf)
		}
	})
}
