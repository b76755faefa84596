package fsm

import (
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// TestAnActionThatDoesNotFitTakesNothingOfALimit: what is read of a namespace counts against its
// limits only until it turns out not to start. Those behind it may start then.
func TestAnActionThatDoesNotFitTakesNothingOfALimit(t *testing.T) {
	t.Run("GPUs", func(t *testing.T) {
		s := newStory(t)
		s.lines(t, "register node=x numa=8 memory=1000 gpus=H100:8", "namespace name=b", "set-namespace name=b gpus=8",
			"submit cores=1 gpus=4 gpuclass=H100", "submit ns=b cores=1 gpus=8 gpuclass=H100 n=1", "submit ns=b cores=1 gpus=4 gpuclass=H100")
		s.wantState(t, 2, state.ActionQueued)
		s.wantState(t, 3, state.ActionRunning)
	})
	t.Run("cores planned together", func(t *testing.T) {
		s := newStory(t)
		s.lines(t, "register node=x numa=8 memory=1000", "namespace name=b", "set-namespace name=b cores=10", "submit cores=1")
		s.apply(t, slices.Concat(parseCommand(t, "submit ns=b cores=1 max=2 single=9s serial=1000"), parseCommand(t, "submit ns=b cores=8"), parseCommand(t, "submit ns=b cores=2"))...)
		s.wantState(t, 2, state.ActionRunning)
		s.wantState(t, 3, state.ActionQueued)
		s.wantState(t, 4, state.ActionRunning)
	})
}

// TestGangsAtALimitHideNoOthers: gangs that wait for the limit of their namespace do not count among
// those that do not fit, and are bypassed by none.
func TestGangsAtALimitHideNoOthers(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=8 memory=1000", "namespace name=a", "namespace name=b", "set-namespace name=a cores=4", "submit ns=a cores=4")
	for range 40 {
		s.lines(t, "submit ns=a n=2 gang=2 cores=1")
	}
	s.lines(t, "submit ns=b n=2 gang=2 cores=1")
	s.wantState(t, 82, state.ActionRunning)
	// A gang that does not fit is bypassed by what starts on its node, behind however many that wait
	// for a limit.
	s.lines(t, "submit ns=b n=2 gang=2 cores=4", "submit ns=b cores=1")
	if g := s.state.Action(84); g.State != state.ActionQueued || g.Bypassed != 1 {
		t.Errorf("the gang that does not fit was bypassed %d times, in state %d", g.Bypassed, g.State)
	}
	s.lines(t, "report node=x action=1")
	s.wantState(t, 2, state.ActionRunning)
}

// TestNoNodeIsReservedForALimit: an action that waits for the limit of its namespace is bypassed by
// none, so that no node is reserved for it on which it may not start.
func TestNoNodeIsReservedForALimit(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=4 memory=1000", "set-namespace cores=3", "open memory=10", "submit cores=1", "submit traj=1 cores=3")
	for id := range uint64(6) {
		s.lines(t, "submit cores=1", "report node=x action="+itoa(int(id+3)))
	}
	if a, n := s.state.Action(2), s.state.NodeByName("x"); a.Bypassed != 0 || n.ReservedFor != 0 {
		t.Errorf("the action was bypassed %d times, and node x is reserved for action %d", a.Bypassed, n.ReservedFor)
	}
}

// TestAReservationKeepsItsPartOfALimit: others of a namespace do not take what its limit leaves to an
// action for which a node is reserved, or the node would stay idle.
func TestAReservationKeepsItsPartOfALimit(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=4 memory=1000", "namespace name=a", "set-namespace name=a cores=4", "submit cores=1 n=4", "submit ns=a cores=4")
	for id := uint64(6); s.state.Action(5).ReservedOn == 0 && id < 12; id++ {
		s.now += int64(time.Second)
		s.lines(t, "submit cores=1", "report node=x action="+itoa(int(id-5)))
	}
	if s.state.Action(5).ReservedOn == 0 {
		t.Fatal("no node is reserved for the wide action")
	}
	s.lines(t, "register node=y numa=3 memory=1000", "submit ns=a cores=1")
	last := s.state.Meta().LastAction
	s.wantState(t, last, state.ActionQueued)
	s.state.Attempts(s.state.NodeByName("x").ID, func(at *state.Attempt) bool {
		s.lines(t, "report node=x action="+itoa(int(at.Action)))
		return true
	})
	s.wantState(t, 5, state.ActionRunning)
	s.wantState(t, last, state.ActionQueued)
}

// TestAnIdleTimeoutBeyondAllTimes: a trajectory whose idle timeout is the longest that there is never
// closes for it.
func TestAnIdleTimeoutBeyondAllTimes(t *testing.T) {
	s := newStory(t)
	s.now = int64(time.Hour)
	s.lines(t, "open idle=2562047h47m16.854775807s", "tick")
	if got := s.state.Trajectory(1).State; got != state.TrajectoryPending {
		t.Errorf("it is in state %d", got)
	}
}

// TestRoomOfANamespaceWaitsForBudget: what a namespace may start, or let go on, since it holds less is
// left to the next entry when the budget of one is spent, however many queues there are.
func TestRoomOfANamespaceWaitsForBudget(t *testing.T) {
	s := newStory(t)
	s.lines(t, "register node=x numa=4 memory=1000 resizes=yes", "set-namespace cores=3", "open memory=10", "submit traj=1 cores=2", "pause id=1", "frozen node=x inc=1 action=1 pause=1", "submit cores=2 max=2")
	x := &execution{s: s.state.Copy(), index: s.index + 1, faults: &faults{}, deciders: sched.Deciders(), budget: 1}
	x.resume(x.s.Trajectory(1)) // which takes the budget
	settings := *x.s.SettingsOf(1)
	settings.CoresMax = 4
	x.s.PutSettings(&settings)
	x.mayHoldMore(1)
	x.schedule()
	ns := state.QueueOf(state.NamespaceRoom, state.NamespaceID(1))
	if at := x.s.Attempt(x.s.Action(1).Node, 1); at.Ice != state.IceLimited || !x.s.WorkLeft(ns) || x.s.WorkCount() != 1 {
		t.Errorf("the attempt is %+v, and %d queues are left", at, x.s.WorkCount())
	}
	after, _, _ := apply(x.s.Copy, s.index+2, &logv1.Entry{TimeNs: s.now, Commands: []*logv1.Command{{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}}}}, sched.Deciders(), nil)
	if at := after.Attempt(after.Action(1).Node, 1); at.Ice != state.IceNone || after.HasWork() {
		t.Errorf("in the next entry, the attempt is %+v, and work is left: %v", at, after.HasWork())
	}
	if err := after.Check(); err != nil {
		t.Error(err)
	}
}

// TestManyNamespacesCostBudget: what it takes to find the next of many namespaces is paid for, and so
// is the move of their clocks.
func TestManyNamespacesCostBudget(t *testing.T) {
	d := newDriver(t)
	d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
	d.register("n", 1)
	const namespaces = 64
	for i := range namespaces {
		name := "ns" + itoa(i)
		d.do(createNamespace(name), &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
			Namespace: name, Actions: []*logv1.Action{{CoresMin: 1, CoresMax: 1, AttemptsMax: 1}},
		}}})
	}
	d.do(d.reported(1))
	d.settle()
	q := state.QueueOf(state.PoolQueue, state.PoolID(1))
	n := *d.state.NodeByName("n")
	s := d.state.Copy()
	p := sched.Deciders()[sched.LevelResizing-state.LevelMin](s, state.QueueOf(state.NodeQueue, n.ID))
	if _, ok := p.Next(); ok || p.Examined() < namespaces-2 {
		t.Errorf("a pass over %d namespaces costs %d", namespaces-2, p.Examined())
	}
	clocks := s.Clocks(q)
	for ns := state.NamespaceID(2); ns <= namespaces+1; ns++ { // the first is the default one
		clocks = clocks.With(state.FairClock{Namespace: ns})
	}
	s.PutClocks(clocks)
	x := &execution{s: s, budget: 100}
	if x.charge(q, 2, 1); x.budget > 100-namespaces/clocksPerStep {
		t.Errorf("a grant among %d clocks costs %d", namespaces, 100-x.budget)
	}
}

// TestGangsAlikeAreSoughtOnce: when there is no room for a gang, a pass does not search for others that
// ask for no less.
func TestGangsAlikeAreSoughtOnce(t *testing.T) {
	d := newDriver(t)
	d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
	const nodes, gangs = 40, 20
	d.registerNodes(nodes, 2)
	one := func(gang uint32) *logv1.Action {
		return &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, GangSize: gang}
	}
	submit := func(n int, gang uint32) {
		c := &logv1.SubmitActions{}
		for range n {
			c.Actions = append(c.Actions, one(gang))
		}
		d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}})
		d.settle()
	}
	submit(nodes, 0)
	for range gangs {
		submit(nodes+8, nodes+8)
	}
	p := sched.Deciders()[sched.LevelResizing-state.LevelMin](d.state.Copy(), state.QueueOf(state.GangQueue, state.PoolID(1)))
	if _, ok := p.Next(); ok || p.Examined() > 4*nodes {
		t.Errorf("a pass over %d gangs that do not fit looks at %d nodes, of %d", gangs, p.Examined(), nodes)
	}
}
