package fsm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// told plays one command and returns the nodes whose desired state it changed.
func (s *story) told(t rapid.TB, line string) []string {
	t.Helper()
	return s.toldOf(t, EffectNode, line)
}

// toldOf plays one command and returns the nodes that its effects of a kind name.
func (s *story) toldOf(t rapid.TB, kind EffectKind, line string) (names []string) {
	t.Helper()
	s.index++
	next, results, effects := apply(s.state.Copy, s.index, &logv1.Entry{TimeNs: s.now, Commands: parseCommand(t, line)}, sched.Deciders(), nil)
	if r := results[0].Refusal; r != nil {
		t.Fatalf("%s: %v", line, r)
	}
	s.state = next
	for _, e := range effects {
		if e.Kind == kind {
			names = append(names, s.nodeName(e.Node))
		}
	}
	slices.Sort(names)
	return names
}

// TestNodesAreToldOfTheirEngines: of those that a model is resident on, and when it is no more.
func TestNodesAreToldOfTheirEngines(t *testing.T) {
	s := newStory(t)
	for _, step := range []struct {
		line string
		want []string
	}{
		{"register node=n1 numa=4 gpus=H100:2", []string{"n1"}},
		{"register node=n2 numa=4 gpus=H100:2", []string{"n2"}},
		{"submit gpus=2 model=m", []string{"n1"}},
		{"engine model=m spec=a", []string{"n1"}},
		{"engine model=m spec=a", nil},
		{"engine model=other spec=a", nil},
		{"submit gpus=2 model=m", []string{"n2"}},
		{"engine model=m spec=b", []string{"n1", "n2"}},
		{"report node=n1 inc=1 action=1", []string{"n1"}},
		{"engine-report node=n1 inc=1 model=m gpus=0+2 state=asleep", nil},
		{"engine-report node=n1 inc=1 model=m gpus=0+2 state=failed", []string{"n1"}},
		{"engine-report node=n1 inc=1 model=m gpus=0+2 state=failed", nil},
		{"engine-report node=n2 inc=2 model=m gpus=0+2 state=failed", nil}, // an action uses it
		{"remove-engine model=m", []string{"n1", "n2"}},                    // n1 has an engine of it
		{"engine-report node=n1 inc=1 model=m gpus=0+2 state=asleep", []string{"n1"}},
		{"engine-report node=n1 inc=1 model=m gpus=0+2 gone=yes", nil},
	} {
		if got := s.told(t, step.line); !slices.Equal(got, step.want) {
			t.Errorf("%s: nodes %v are told, want %v", step.line, got, step.want)
		}
	}
}

// TestEnginesAreBounded: there are not too many, and of a node the newest are known.
func TestEnginesAreBounded(t *testing.T) {
	s := newStory(t)
	s.told(t, "register node=n1 numa=4 gpus=H100:8")
	for i := range state.EnginesMax {
		s.state.PutEngine(&state.Engine{Model: fmt.Sprintf("m%d", i), Generation: uint64(i) + 1, Spec: []byte("a")})
	}
	m := *s.state.Meta()
	m.LastGeneration = state.EnginesMax
	s.state.SetMeta(m)
	s.told(t, "engine model=m7 spec=b")
	_, results, _ := apply(s.state.Copy, s.index+1, &logv1.Entry{Commands: parseCommand(t, "engine model=new spec=a")}, sched.Deciders(), nil)
	if r := results[0].Refusal; r == nil || r.Reason != "TOO_MANY_ENGINES" {
		t.Errorf("one engine more: %v", results[0])
	}
	for i := range state.NodeEnginesMax + 3 {
		s.now++
		s.told(t, fmt.Sprintf("engine-report node=n1 inc=1 model=x%d gpus=%d+1 state=asleep", i, i%8))
	}
	known := s.state.EnginesOn(1)
	if len(known) != state.NodeEnginesMax {
		t.Fatalf("%d engines are known, want %d", len(known), state.NodeEnginesMax)
	}
	for i := range known {
		if slices.Contains([]string{"x0", "x1", "x2"}, known[i].Model) {
			t.Errorf("%s is known, which has not changed for longest", known[i].Model)
		}
	}
	if err := s.state.Check(); err != nil {
		t.Error(err)
	}
}

// TestEnginesNeedTheirLevel: before it is active, all is refused.
func TestEnginesNeedTheirLevel(t *testing.T) {
	b := newBuild(state.LevelMax)
	b.Apply(entryLog(t, 1, 1, bootstrapBy(state.LevelMin)))
	for i, line := range []string{"engine model=m spec=a", "remove-engine model=m", "engine-report node=n1 inc=1 model=m gpus=0+1 state=ready"} {
		index := uint64(i) + 2
		for _, r := range b.Apply(entryLog(t, index, int64(index), parseCommand(t, line)...)).([]*logv1.Result) {
			if r.GetRefusal().GetReason() != "LEVEL_NOT_ACTIVE" {
				t.Errorf("%s: %v", line, r)
			}
		}
	}
	b.View(func(s *state.State) {
		if s.EngineCount() > 0 {
			t.Error("there is an engine")
		}
	})
}

// TestWhatIsLearnedIsOfTheAction: where the node sets up the engine before the attempt starts,
// its set-up is no part of the time that the attempt ran.
func TestWhatIsLearnedIsOfTheAction(t *testing.T) {
	for _, c := range []struct {
		engine string
		want   int64
	}{{"engine model=m spec=a", 10}, {"engine model=other spec=a", 7}} {
		s := newStory(t)
		s.told(t, "register node=n1 numa=4 gpus=H100:1")
		s.told(t, c.engine)
		s.told(t, "submit gpus=1 model=m setup=3s class=c")
		s.told(t, "report node=n1 inc=1 action=1 exec=10s")
		s.state.Classes(0, func(class *state.Class) bool {
			if got := class.Seen[0].MeanNS; got != c.want*1_000_000_000 {
				t.Errorf("with %s it took %d ns, want %d s", c.engine, got, c.want)
			}
			return true
		})
	}
}
