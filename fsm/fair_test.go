package fsm

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// contest has namespaces compete for a resource. What runs ends after a time that is drawn.
type contest struct {
	*driver
	rng    *rand.Rand
	action func(ns string) *logv1.Action
	// waiting is how many actions of each namespace are to wait at any time.
	waiting map[string]int
	// takes draws how long an action of a namespace takes.
	takes func(ns string, rng *rand.Rand) time.Duration
	// units is what an attempt holds of the resource.
	units func(*state.Attempt) int
	names []string
	ends  map[state.ActionID]int64
	held  map[string]float64 // unit-seconds
	after func()             // each event
}

// newContest makes namespaces with these weights, called a, b and so on.
func newContest(t testing.TB, action func(ns string) *logv1.Action, weights ...uint32) *contest {
	c := &contest{
		driver: newDriver(t), rng: rand.New(rand.NewPCG(1, 2)), action: action, waiting: map[string]int{},
		units: func(t *state.Attempt) int { return t.Cores.Len() + int(t.Chunk.Units) },
		takes: func(_ string, rng *rand.Rand) time.Duration {
			return time.Duration(-math.Log(1-rng.Float64()) * float64(time.Second))
		},
		ends: map[state.ActionID]int64{}, held: map[string]float64{},
	}
	c.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
	for i, weight := range weights {
		name := string(rune('a' + i))
		c.names = append(c.names, name)
		c.waiting[name] = 40
		c.do(createNamespace(name), setNamespace(&logv1.UpdateNamespace{Name: name, Weight: proto.Uint32(weight)}))
	}
	return c
}

func createNamespace(name string) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: name}}}
}

func setNamespace(c *logv1.UpdateNamespace) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: c}}
}

func (c *contest) nameOf(a *state.Action) string { return c.state.Namespace(a.Namespace).Name }

// fill submits until as many wait as are to, and draws when those end that have started.
func (c *contest) fill() {
	c.Helper()
	for _, ns := range c.names {
		lack := c.waiting[ns] - c.state.NamespaceQueued(c.state.NamespaceByName(ns).ID)
		s := &logv1.SubmitActions{Namespace: ns}
		for ; lack > 0; lack-- {
			s.Actions = append(s.Actions, c.action(ns))
		}
		if len(s.Actions) > 0 {
			c.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: s}})
			c.settle()
		}
	}
	c.running(func(t *state.Attempt) {
		if _, known := c.ends[t.Action]; !known {
			c.ends[t.Action] = c.now + max(1000, int64(c.takes(c.nameOf(c.state.Action(t.Action)), c.rng)))
		}
	})
}

func (c *contest) running(fn func(*state.Attempt)) {
	c.state.Nodes(0, func(n *state.Node) bool {
		c.state.Attempts(n.ID, func(t *state.Attempt) bool { fn(t); return true })
		return true
	})
}

// run goes on for a log time, with the same number of waiting actions at any time.
func (c *contest) run(took time.Duration) {
	c.Helper()
	until := c.now + int64(took)
	for c.fill(); c.now < until; c.fill() {
		next, first := until, state.ActionID(0)
		c.running(func(t *state.Attempt) {
			if at := c.ends[t.Action]; at < next || at == next && t.Action < first {
				next, first = at, t.Action
			}
		})
		c.running(func(t *state.Attempt) {
			c.held[c.nameOf(c.state.Action(t.Action))] += float64(c.units(t)) * float64(max(0, next-c.now)) / 1e9
		})
		if c.now = max(c.now, next); first == 0 {
			return
		}
		c.do(c.reported(first))
		c.settle()
		if c.after != nil {
			c.after()
		}
	}
}

// shares are the parts of what was held since it was asked last, in percent.
func (c *contest) shares() map[string]float64 {
	sum, out := 0.0, map[string]float64{}
	for _, ns := range c.names {
		sum += c.held[ns]
	}
	for _, ns := range c.names {
		out[ns] = 100 * c.held[ns] / sum
	}
	clear(c.held)
	return out
}

func (c *contest) wantShares(what string, within float64, want ...float64) {
	c.Helper()
	got := c.shares()
	for i, ns := range c.names {
		if math.Abs(got[ns]-want[i]) > within {
			c.Errorf("%s: namespace %s got %.1f %%, want %.1f %% (all: %v)", what, ns, got[ns], want[i], got)
		}
	}
}

// resources are those that namespaces compete for: how a cluster of some units is made, and what
// an action asks for.
var resources = []struct {
	name   string
	make   func(c *contest)
	action func(string) *logv1.Action
	units  func(*contest) func(*state.Attempt) int
	// horizon is how long it is watched: a hundred times as long as an action takes or more.
	horizon time.Duration
}{
	{"one core", func(c *contest) { c.register("n", 1) }, oneCore, nil, 4000 * time.Second},
	{"cores of one node", func(c *contest) { c.register("n", 16) }, oneCore, nil, 400 * time.Second},
	{"cores of many nodes", func(c *contest) { c.registerNodes(5, 4) }, oneCore, nil, 400 * time.Second},
	{"GPUs", func(c *contest) {
		for _, n := range []string{"x", "y"} {
			r := registration(n, 16)
			r.GetRegisterNode().Gpus = &logv1.GpuInventory{Class: "H100", Count: 8, MemoryBytes: 80 << 30}
			c.do(r)
		}
	}, func(string) *logv1.Action {
		return &logv1.Action{AttemptsMax: 1, Needs: &logv1.Needs{Gpus: &logv1.Gpus{Class: "H100", Degrees: []uint32{1}}}}
	}, nil, 400 * time.Second},
	{"chunks of GPUs", func(c *contest) {
		for _, n := range []string{"x", "y"} {
			r := registration(n, 16)
			r.GetRegisterNode().Gpus = &logv1.GpuInventory{Class: "H100", Count: 8, MemoryBytes: 80 << 30}
			c.do(r)
		}
	}, func(ns string) *logv1.Action {
		k := uint32(2)
		if ns == "a" {
			k = 4
		}
		return &logv1.Action{AttemptsMax: 1, Needs: &logv1.Needs{Gpus: &logv1.Gpus{Class: "H100", Degrees: []uint32{k}}}}
	}, nil, 1000 * time.Second},
	{"a quota", func(c *contest) {
		c.register("n", 1)
		c.do(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{Name: "q", Kind: 1, Limit: 12}}})
	}, func(string) *logv1.Action {
		return &logv1.Action{AttemptsMax: 1, Needs: &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "q", Units: 1}}}}
	}, func(*contest) func(*state.Attempt) int { return func(*state.Attempt) int { return 1 } }, 400 * time.Second},
}

func oneCore(string) *logv1.Action { return &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1} }

// TestWeightsDivide: two namespaces with weights 1 and 3 that always have something waiting get 25
// and 75 % of each resource, however long the actions of each take.
func TestWeightsDivide(t *testing.T) {
	exp := func(mean time.Duration) func(*rand.Rand) time.Duration {
		return func(rng *rand.Rand) time.Duration { return time.Duration(-math.Log(1-rng.Float64()) * float64(mean)) }
	}
	fixed := func(d time.Duration) func(*rand.Rand) time.Duration {
		return func(*rand.Rand) time.Duration { return d }
	}
	lengths := []struct {
		name string
		a, b func(*rand.Rand) time.Duration
	}{
		{"alike", fixed(time.Second), fixed(time.Second)},
		{"drawn", exp(time.Second), exp(time.Second)},
		{"those of the light one are long", exp(8 * time.Second), exp(time.Second)},
		{"those of the heavy one are long", fixed(time.Second), exp(8 * time.Second)},
	}
	for _, r := range resources {
		for i, l := range lengths {
			if i > 0 && r.name != "cores of many nodes" && l.name != "those of the light one are long" {
				continue
			}
			t.Run(r.name+"/"+l.name, func(t *testing.T) {
				c := newContest(t, r.action, 1, 3)
				if r.units != nil {
					c.units = r.units(c)
				}
				c.takes = func(ns string, rng *rand.Rand) time.Duration {
					if ns == "a" {
						return l.a(rng)
					}
					return l.b(rng)
				}
				r.make(c)
				c.run(60 * time.Second)
				c.shares()
				c.run(r.horizon)
				c.wantShares("saturated", 3, 25, 75)
				c.check()
			})
		}
	}
}

// TestWhatIsIdleIsLent: a namespace alone has everything. When the other comes, it gets its share
// within the time that what runs takes, and no more for having been idle.
func TestWhatIsIdleIsLent(t *testing.T) {
	for _, r := range resources[1:] {
		if r.name == "chunks of GPUs" {
			continue // whether a chunk of 4 is free depends on where those of 2 are
		}
		t.Run(r.name, func(t *testing.T) {
			c := newContest(t, r.action, 1, 3)
			if r.units != nil {
				c.units = r.units(c)
			}
			r.make(c)
			c.takes = func(_ string, rng *rand.Rand) time.Duration {
				return time.Second + time.Duration(rng.IntN(1000))*time.Millisecond
			}
			for range 2 {
				c.waiting["b"] = 0
				c.run(45 * time.Second) // b uses up what waits of it
				c.shares()
				c.run(100 * time.Second)
				c.wantShares("alone", 0, 100, 0)
				c.waiting["b"] = 40
				c.run(2 * time.Second) // the longest that runs
				c.shares()
				c.run(40 * time.Second)
				c.wantShares("together again", 6, 25, 75)
			}
			c.check()
		})
	}
}

// TestOfOneNamespaceNothingChanges: with one namespace that waits, the order is that of age,
// whatever its weight is.
func TestOfOneNamespaceNothingChanges(t *testing.T) {
	c := newContest(t, oneCore, 7, 1)
	c.waiting["b"] = 0
	c.registerNodes(3, 4)
	var started []state.ActionID
	seen := map[state.ActionID]bool{}
	c.after = func() {
		c.running(func(t *state.Attempt) {
			if !seen[t.Action] {
				seen[t.Action] = true
				started = append(started, t.Action)
			}
		})
	}
	c.run(30 * time.Second)
	if len(started) < 200 || !slices.IsSorted(started[12:]) {
		t.Errorf("%d started in the order %v", len(started), started)
	}
}

// TestLimitsHold: a namespace never holds more than it may, what waits for that starts as soon as
// some of it has ended, wherever it waits, and the rest goes to others.
func TestLimitsHold(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits *logv1.UpdateNamespace
		action func(string) *logv1.Action
	}{
		{"running", &logv1.UpdateNamespace{RunningMax: proto.Uint32(3)}, oneCore},
		{"cores", &logv1.UpdateNamespace{CoresMax: proto.Uint32(3)}, oneCore},
		{"elastic cores", &logv1.UpdateNamespace{CoresMax: proto.Uint32(3)}, func(string) *logv1.Action { return &logv1.Action{CoresMin: 1, CoresMax: 8, AttemptsMax: 1} }},
		{"GPUs", &logv1.UpdateNamespace{GpusMax: proto.Uint32(3)}, func(string) *logv1.Action {
			return &logv1.Action{AttemptsMax: 1, Needs: &logv1.Needs{Gpus: &logv1.Gpus{Class: "H100", Degrees: []uint32{1}}}}
		}},
	} {
		for _, others := range []int{0, 40} {
			s := newContest(t, c.action, 1, 1)
			s.waiting["b"] = others
			for _, n := range []string{"x", "y", "z"} {
				r := registration(n, 4)
				r.GetRegisterNode().Gpus = &logv1.GpuInventory{Class: "H100", Count: 4, MemoryBytes: 80 << 30}
				s.do(r)
			}
			c.limits.Name = "a"
			s.do(setNamespace(c.limits))
			a, b := s.state.NamespaceByName("a").ID, s.state.NamespaceByName("b").ID
			s.after = func() {
				held, other := s.state.HeldBy(a), s.state.HeldBy(b)
				if n := max(held.Cores, held.GPUs); n != 3 || held.Running > 3 {
					t.Fatalf("%s: the limited namespace holds %+v", c.name, held)
				}
				if n := max(other.Cores, other.GPUs); others > 0 && n != 9 {
					t.Fatalf("%s: the other namespace holds %+v", c.name, other)
				}
			}
			s.run(20 * time.Second)
			s.check()
		}
	}
}

// TestALimitIsRaised: what waited for it starts at once, also what waits for one node.
func TestALimitIsRaised(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=4 memory=1000", "set-namespace cores=2", "open memory=10", "submit traj=1 cores=1", "submit traj=1 cores=2", "submit cores=1")
	s.wantState(t, 2, state.ActionQueued)
	if text := sched.Explain(s.state, s.state.Action(2), s.now); !strings.Contains(text, "of at most 2 cores, and the action needs 2") {
		t.Errorf("it is explained with %q", text)
	}
	s.lines(t, "set-namespace cores=4")
	s.wantState(t, 2, state.ActionRunning)
	s.wantState(t, 3, state.ActionRunning)
}

// TestALimitFreedElsewhere: the end of an action has the next of its namespace start on whatever
// node it waits for. If the oldest cannot start, as its node is full, the next one does.
func TestALimitFreedElsewhere(t *testing.T) {
	for _, limits := range []*logv1.UpdateNamespace{{RunningMax: proto.Uint32(1)}, {CoresMax: proto.Uint32(1)}} {
		d := newDriver(t)
		d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
		limits.Name = "a"
		d.do(createNamespace("a"), setNamespace(limits))
		submit := func(ns string, trajectory uint64) state.ActionID {
			d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
				Namespace: ns, Actions: []*logv1.Action{{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, TrajectoryId: trajectory}},
			}}})
			d.settle()
			return d.state.Meta().LastAction
		}
		for i := range uint64(3) { // trajectory 1 is on x, 2 on y, 3 on z
			d.register(string(rune('x'+i)), 1)
			d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{Namespace: "a", MemoryBytes: 500 << 30}}})
			d.settle()
		}
		first := submit("a", 1)
		onY, onZ := submit("a", 2), submit("a", 3)
		full := submit("", 0) // takes y or z
		running := func(id state.ActionID) bool { return d.state.Action(id).State == state.ActionRunning }
		if !running(first) || running(onY) || running(onZ) || !running(full) {
			t.Fatalf("with %+v, not the first action alone runs, beside that of the other namespace", limits)
		}
		want := onY
		if d.state.Action(full).Node == d.state.Action(onY).Node {
			want = onZ
		}
		d.do(d.reported(first))
		d.settle()
		if !running(want) {
			t.Errorf("with %+v, action %d does not start when action %d on another node has ended", limits, want, first)
		}
		d.check()
	}
}

// TestAnOldFloodStarvesNobody: a wide action of one namespace starts, though another had queued
// thousands of narrow ones before it, and though younger ones of its own go on starting.
func TestAnOldFloodStarvesNobody(t *testing.T) {
	c := newContest(t, oneCore, 1, 1)
	c.register("n", 8)
	c.waiting = map[string]int{"a": 2000, "b": 0}
	c.run(5 * time.Second)
	r := c.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Namespace: "b", Actions: []*logv1.Action{{CoresMin: 8, CoresMax: 8, AttemptsMax: 1}},
	}}})
	wide := state.ActionID(r[0].FirstId)
	c.waiting["b"] = 40
	for range 60 {
		if c.run(time.Second); c.state.Action(wide).State != state.ActionQueued {
			c.check()
			return
		}
	}
	t.Errorf("the wide action still waits: %s", sched.Explain(c.state, c.state.Action(wide), c.now))
}
