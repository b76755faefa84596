package leader

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
)

func poolCommand(change *logv1.ChangeWorkerPool) *logv1.Command {
	change.Name = "x"
	return &logv1.Command{Verb: &logv1.Command_ChangeWorkerPool{ChangeWorkerPool: change}}
}

// pooled is a cluster with a node of 4 GPUs, a pool of workers on them, and a rollout that needs
// them.
func pooled(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.pass(time.Second)
	node := registration("n")
	node.GetRegisterNode().Address = "10.0.0.1:7500"
	node.GetRegisterNode().Gpus = &logv1.GpuInventory{Class: "H100", Count: 4, MemoryBytes: 1 << 30}
	spec := &logv1.WorkerPoolSpec{
		Policy: "p", Gpus: 4, Port: 8000, SetUpNs: int64(20 * time.Second),
		Start: &logv1.Action{AttemptsMax: 1, Needs: &logv1.Needs{Gpus: &logv1.Gpus{}}},
	}
	for i, ms := range []int64{40, 24, 14} {
		spec.Options = append(spec.Options, &logv1.WorkerPoolOption{Degree: 1 << i, Slots: 8, Profile: []*logv1.WorkerProfilePoint{
			{BatchSize: 1, TokenNs: ms * int64(time.Millisecond)}, {BatchSize: 8, TokenNs: 2 * ms * int64(time.Millisecond)},
		}})
	}
	c.must(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: uint32(state.LevelResizing)}}})
	c.must(node, poolCommand(&logv1.ChangeWorkerPool{Change: &logv1.ChangeWorkerPool_Declare{Declare: spec}}))
	return c
}

// pool returns the pool as it is; nil: it is gone.
func (c *cluster) pool() (p *state.WorkerPool) {
	c.view(func(s *state.State) { p = s.WorkerPool("x") })
	return p
}

// workerStates says how many workers of the pool are in which state, and that they are where their
// actions run.
func (c *cluster) workerStates() map[state.WorkerState]int {
	c.Helper()
	n := map[state.WorkerState]int{}
	c.view(func(s *state.State) {
		p := s.WorkerPool("x")
		for _, m := range p.Members {
			w := s.Worker(p.WorkerName(m.Action))
			if w == nil {
				continue
			}
			a := s.Action(m.Action)
			if want := fmt.Sprintf("http://10.0.0.1:%d", 8000+s.Attempt(a.Node, a.ID).Chunk.First); w.URL != want || w.Pool != "x" || w.Degree != m.Degree || w.Policy != "p" {
				c.Errorf("worker %+v of degree %d, must be at %s", *w, m.Degree, want)
			}
			n[s.WorkerState(w)]++
		}
	})
	return n
}

// end reports the end of an action.
func (c *cluster) end(id state.ActionID) {
	c.Helper()
	c.must(&logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: "n", Incarnation: 1, Reports: []*logv1.AttemptReport{{ActionId: uint64(id), Attempt: 1, Reason: uint32(state.EndExited), ExitCode: 1}},
	}}})
}

func createRollout() *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{Policy: "p", Groups: 4, SamplesPerGroup: 1}}}
}

// TestAWorkerPoolIsPlannedWhenARolloutBegins: before, it has no workers. Then its GPUs are divided, and
// workers are registered where their actions run. They are used when their engines have started.
func TestAWorkerPoolIsPlannedWhenARolloutBegins(t *testing.T) {
	c := pooled(t)
	c.wait(3 * time.Second)
	if p := c.pool(); len(p.Members) > 0 || p.Plan.At != 0 {
		t.Fatalf("without trajectories, the pool has %+v", p)
	}
	c.must(createRollout())
	c.wait(8 * time.Second)
	p, gpus := c.pool(), uint32(0)
	for _, d := range p.Degrees() {
		gpus += d
	}
	if gpus == 0 || gpus > 4 || !p.Plan.Changed || p.Plan.Rollout != 1 || p.Plan.Trajectories != 4 || p.Plan.PlannedNS == 0 {
		t.Fatalf("the pool has %d GPUs and %+v", gpus, p)
	}
	n := len(p.Members)
	if got := c.workerStates(); got[state.WorkerDown] != n || len(got) != 1 {
		t.Errorf("while engines start, workers are %v of %d", got, n)
	}
	c.wait(25 * time.Second)
	if got := c.workerStates(); got[state.WorkerUp] != n || len(got) != 1 {
		t.Errorf("when engines have started, workers are %v of %d", got, n)
	}
	if now := c.pool(); now.Revision != p.Revision {
		t.Errorf("at no boundary, the pool changed from %+v to %+v", p, now)
	}
}

// TestAWorkerWhoseActionEndsIsStartedAgain: after a pause, as another worker.
func TestAWorkerWhoseActionEndsIsStartedAgain(t *testing.T) {
	c := pooled(t)
	c.must(createRollout())
	c.wait(8 * time.Second)
	first := c.pool().Members[0]
	c.end(first.Action)
	c.wait(2 * time.Second)
	c.view(func(s *state.State) {
		if name := s.WorkerPool("x").WorkerName(first.Action); s.Worker(name) != nil {
			t.Errorf("worker %s is there, and its action is over", name)
		}
	})
	c.wait(8 * time.Second)
	if again := c.pool().Members[0]; again.Action == first.Action || again.Starts != 2 || again.Serial != first.Serial {
		t.Errorf("the member was %+v and is %+v", first, again)
	}
	if got := c.workerStates(); got[state.WorkerDown] != len(c.pool().Members) {
		t.Errorf("workers are %v", got)
	}
}

// TestWorkersOfAPoolThatIsRemovedLeave: they drain, their actions are canceled, and then the pool is
// gone.
func TestWorkersOfAPoolThatIsRemovedLeave(t *testing.T) {
	c := pooled(t)
	c.must(createRollout())
	c.wait(8 * time.Second)
	members := c.pool().Members
	c.must(poolCommand(&logv1.ChangeWorkerPool{Change: &logv1.ChangeWorkerPool_Remove{Remove: true}}))
	c.wait(5 * time.Second)
	c.view(func(s *state.State) {
		if s.WorkerCount() > 0 {
			t.Errorf("%d workers are there", s.WorkerCount())
		}
		for _, m := range members {
			if a := s.Action(m.Action); a == nil || a.CancelReason == 0 {
				t.Errorf("action %d was not told to end: %+v", m.Action, a)
			}
		}
	})
	for _, m := range members {
		c.end(m.Action)
	}
	c.wait(3 * time.Second)
	if p := c.pool(); p != nil {
		t.Errorf("the pool is there: %+v", p)
	}
}

// TestAWorkerThatCannotDrainIsRemoved: its trajectories have nowhere to go, as the workers that come wait
// for its GPUs.
func TestAWorkerThatCannotDrainIsRemoved(t *testing.T) {
	c := pooled(t)
	c.must(createRollout())
	c.wait(30 * time.Second)
	c.must(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{Generation: &logv1.GenerationSpec{Policy: "p"}}}})
	p := c.pool()
	plan := &logv1.WorkerPoolPlan{Revision: p.Revision, RolloutId: 1, Degrees: []uint32{2, 2}}
	if len(p.Members) > 1 {
		plan.Degrees = []uint32{4}
	}
	before := ""
	c.view(func(s *state.State) { before = s.Generation(1).Worker })
	c.must(poolCommand(&logv1.ChangeWorkerPool{Change: &logv1.ChangeWorkerPool_Plan{Plan: plan}}))
	for _, test := range []struct {
		after time.Duration
		there bool
	}{{100 * time.Second, true}, {30 * time.Second, false}} {
		c.wait(test.after)
		c.view(func(s *state.State) {
			if there := s.Worker(before) != nil; there != test.there || there != (s.Generation(1).Worker == before) {
				t.Errorf("after %v more, worker %q is there: %v; the trajectory is at %q", test.after, before, there, s.Generation(1).Worker)
			}
		})
	}
}

// TestEveryStepOfWorkerPoolsHasItsTurn: no look proposes more than fits an entry, and whatever is
// refused, all is proposed in the end.
func TestEveryStepOfWorkerPoolsHasItsTurn(t *testing.T) {
	for _, n := range []int{0, 1, workerPoolSteps, workerPoolSteps + 1, 64 * state.WorkerPoolMembersMax} {
		commands, seen := make([]*logv1.Command, n), map[*logv1.Command]bool{}
		for i := range commands {
			commands[i] = poolCommand(&logv1.ChangeWorkerPool{})
		}
		for look := range n/workerPoolSteps + 1 {
			weight := 0
			for _, c := range share(commands, look) {
				seen[c] = true
				weight += fsm.Weight(c)
			}
			if weight > fsm.EntryWeight {
				t.Errorf("of %d steps, a look proposes what weighs %d", n, weight)
			}
		}
		if len(seen) != n {
			t.Errorf("%d of %d steps had their turn", len(seen), n)
		}
	}
}

// TestRefusedStartsOfWorkersPause: a start that is refused is not tried each second, and other
// steps of its pool and of other pools go on. A start that is not refused ends the pauses.
func TestRefusedStartsOfWorkersPause(t *testing.T) {
	start := poolCommand(&logv1.ChangeWorkerPool{Change: &logv1.ChangeWorkerPool_Start{Start: 1}})
	drop := poolCommand(&logv1.ChangeWorkerPool{Change: &logv1.ChangeWorkerPool_Drop{Drop: 2}})
	other := poolCommand(&logv1.ChangeWorkerPool{Change: &logv1.ChangeWorkerPool_Start{Start: 3}})
	other.GetChangeWorkerPool().Name = "y"
	w := workerPools{logger: hclog.NewNullLogger()}
	second := int64(time.Second)
	var tried []int64
	look := func(at int64, refuse bool) {
		w.planned = w.due([]*logv1.Command{start, drop, other}, at)
		var results []*logv1.Result
		for _, c := range w.planned {
			r := &logv1.Result{}
			if c == start {
				tried = append(tried, at/second)
				if refuse {
					r.Refusal = &logv1.Refusal{Message: "the queue is full"}
				}
			}
			results = append(results, r)
		}
		if len(w.planned) < 2 {
			t.Fatalf("at %d s, %d steps are left", at/second, len(w.planned))
		}
		w.answered(Time{Mono: at}, results)
	}
	for at := range int64(200) {
		look(at*second, true)
	}
	if want := "[0 2 6 14 30 62 122 182]"; fmt.Sprint(tried) != want {
		t.Errorf("it was tried at %v, want %s", tried, want)
	}
	tried = nil
	for at := int64(250); at < 253; at++ {
		look(at*second, false)
	}
	look(253*second, true)
	look(254*second, true)
	look(255*second, true)
	if want := "[250 251 252 253 255]"; fmt.Sprint(tried) != want {
		t.Errorf("after a start that was not refused, it was tried at %v, want %s", tried, want)
	}
}
