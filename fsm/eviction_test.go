package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/fsm/state"
	"rota/sched"
)

// server serves requests for models one after the other, on a node of some GPUs of which each
// has room for one model.
type server struct {
	*build
	t       rapid.TB
	index   uint64
	actions int
}

func newServer(t rapid.TB, level state.Level, gpus int) *server {
	s := &server{build: newBuild(state.LevelMax), t: t}
	s.Apply(entryLog(t, 1, 1, bootstrapBy(level)))
	s.index = 1
	s.next(fmt.Sprintf("register node=n1 numa=8 gpus=H100:%d gpumem=80", gpus))
	return s
}

func (s *server) next(lines ...string) {
	s.t.Helper()
	s.index++
	s.do(s.t, s.index, lines...)
	if s.stopped != nil {
		s.t.Fatal(s.stopped)
	}
}

// use serves one request, and returns the set-up that was charged, in seconds.
func (s *server) use(model string, seconds int) (setUp int64) {
	s.t.Helper()
	s.next(fmt.Sprintf("submit cores=0 gpus=1 model=%s setup=%ds", model, seconds))
	s.actions++
	s.View(func(st *state.State) {
		t := st.Attempt(1, state.ActionID(s.actions))
		if t == nil {
			s.t.Fatalf("request %d does not run", s.actions)
		}
		setUp = t.SetUpNS / 1_000_000_000
	})
	s.next(fmt.Sprintf("report node=n1 inc=1 action=%d", s.actions))
	return setUp
}

// resident returns the names of what is resident, in order of the alphabet.
func (s *server) resident() string {
	var names []string
	s.View(func(st *state.State) {
		for _, m := range st.ModelsOn(1) {
			names = append(names, m.Model)
		}
	})
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestEvictionsOfEachLevel: level 2 evicts the least recently used and knows no worth, level 3
// the cheapest. What became resident before the level was raised goes first.
func TestEvictionsOfEachLevel(t *testing.T) {
	for level, stays := range map[state.Level]string{state.LevelMin: "new quick", sched.LevelResizing: "new slow"} {
		s := newServer(t, level, 2)
		s.use("slow", 30)
		s.use("quick", 2)
		s.use("new", 1)
		if got := s.resident(); got != stays {
			t.Errorf("level %d: %s are resident, must be %s", level, got, stays)
		}
		s.View(func(st *state.State) {
			for _, m := range st.ModelsOn(1) {
				if valued := m.Uses > 0 || m.Worth > 0; valued != (level == sched.LevelResizing) {
					t.Errorf("level %d: model %+v", level, m)
				}
			}
			if aged := st.GPUClass(1).Age > 0; aged != (level == sched.LevelResizing) {
				t.Errorf("level %d: the class has an age of %d us", level, st.GPUClass(1).Age)
			}
		})
	}
	s := newServer(t, state.LevelMin, 2)
	s.use("slow", 30)
	s.Apply(entryLog(t, s.index+1, int64(s.index+1), activation(sched.LevelResizing)))
	s.index++
	s.use("quick", 2)
	s.use("new", 1)
	if got := s.resident(); got != "new quick" {
		t.Errorf("after the level was raised %s are resident, must be new and quick", got)
	}
}

// TestPopularModelsAge: a model that was dear and popular, and is not used any more, goes in the
// end. Without ageing, the two others would evict each other for ever.
func TestPopularModelsAge(t *testing.T) {
	s := newServer(t, sched.LevelResizing, 2)
	for range 100 {
		s.use("popular", 20)
	}
	paid := int64(0)
	for range 300 {
		paid += s.use("a", 1) + s.use("b", 1)
	}
	if got := s.resident(); got != "a b" {
		t.Errorf("%s are resident, must be a and b", got)
	}
	if most := int64(20*state.UsesMax + 20); paid > most {
		t.Errorf("set-ups took %d s, at most %d are needed to outlive %d uses of 20 s", paid, most, state.UsesMax)
	}
}

// TestEvictionsAgainstTheOptimum: whatever the requests, set-ups take no more than the bound for
// GreedyDual times what they take for who knows all requests beforehand: the number of GPUs
// (Young 1994), and the uses that count. LRU has no such bound.
func TestEvictionsAgainstTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gpus, models = 2, 4
		setUps := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 5, 40}), models, models).Draw(t, "set-ups")
		requests := rapid.SliceOfN(rapid.IntRange(0, models-1), 1, 40).Draw(t, "requests")
		s, paid := newServer(t, sched.LevelResizing, gpus), int64(0)
		for _, m := range requests {
			paid += s.use(fmt.Sprint("m", m), setUps[m])
		}
		optimum := leastSetUp(requests, setUps, gpus)
		if paid < optimum || paid > gpus*state.UsesMax*optimum {
			t.Fatalf("set-ups took %d s, the least is %d", paid, optimum)
		}
	})
}

// leastSetUp is the least time that set-ups take, by trying all that can be resident after each
// request.
func leastSetUp(requests, setUps []int, gpus int) int64 {
	costs := map[uint]int64{0: 0} // by what is resident, a bit for each model
	for _, m := range requests {
		after := make(map[uint]int64)
		reach := func(resident uint, cost int64) {
			if old, known := after[resident]; !known || cost < old {
				after[resident] = cost
			}
		}
		for resident, cost := range costs {
			own := uint(1) << m
			if resident&own != 0 {
				reach(resident, cost)
				continue
			}
			cost += int64(setUps[m])
			count := 0
			for k := range setUps {
				if bit := uint(1) << k; resident&bit != 0 {
					count++
					reach(resident&^bit|own, cost)
				}
			}
			if count < gpus {
				reach(resident|own, cost)
			}
		}
		costs = after
	}
	least := int64(-1)
	for _, cost := range costs {
		if least < 0 || cost < least {
			least = cost
		}
	}
	return least
}
