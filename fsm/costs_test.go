package fsm

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// What one entry costs. Times are compared with those of entries that do as much of something
// plain, so that they do not depend on the machine.

// least returns the shortest time of a few tries of an entry. The state stays as it is.
func (d *driver) least(commands ...*logv1.Command) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		apply(d.state.Copy, d.index+1, &logv1.Entry{TimeNs: d.now, Commands: commands}, sched.Deciders(), nil)
		least = min(least, time.Since(began))
	}
	return least
}

// atMost fails if an entry takes many times longer than another one.
func (d *driver) atMost(times int, plain, took time.Duration) {
	d.Helper()
	if took > time.Duration(times)*plain {
		d.Errorf("the entry takes %v, which is more than %d times the %v of a plain one", took, times, plain)
	}
}

// TestCancelingWhatAPendingTrajectoryAsksFor: the end of each action costs the same, whether it asked
// for the most or not.
func TestCancelingWhatAPendingTrajectoryAsksFor(t *testing.T) {
	const most = trajectoryLiveMax - 1
	for name, cores := range map[string]func(i int) uint32{
		"alike":     func(int) uint32 { return 1 },
		"ascending": func(i int) uint32 { return uint32(1 + i*200/most) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t)
			d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{}}})
			for _, trajectory := range []uint64{1, 0} {
				c := &logv1.SubmitActions{}
				for i := range most + 1 {
					n := cores(i)
					if i == most {
						n = 250
					}
					c.Actions = append(c.Actions, &logv1.Action{TrajectoryId: trajectory, AttemptsMax: 1, CoresMin: n, CoresMax: n})
				}
				d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}})
				d.settle()
			}
			pending, plain := cancellation(1, most), cancellation(most+2, most)
			slices.Reverse(pending[0].GetCancelActions().Ids) // the largest first
			d.atMost(8, d.least(plain...), d.least(pending...))
			d.do(pending...)
			d.check()
			if n := d.state.Trajectory(1).RequestedCores; n != 250 {
				t.Errorf("the trajectory asks for %d cores, want 250", n)
			}
			d.do(cancellation(most+1, 1)...)
			if n := d.state.Trajectory(1).RequestedCores; n != 0 {
				t.Errorf("the trajectory asks for %d cores, want none", n)
			}
			d.check()
		})
	}
}

// levelThree raises the feature level.
func (d *driver) levelThree() {
	d.Helper()
	d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: uint32(state.LevelResizing)}}})
}

// shortest returns the shortest time of a few tries of something that is done a hundred times.
func shortest(do func()) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 5 {
		began := time.Now()
		for range 100 {
			do()
		}
		least = min(least, time.Since(began))
	}
	return least
}

// TestReservationsAreFoundAmongManyNodes: what is reserved for a namespace costs the same to look at,
// however many nodes there are.
func TestReservationsAreFoundAmongManyNodes(t *testing.T) {
	d := newDriver(t)
	cost := func(nodes int) time.Duration {
		d = newDriver(t)
		d.levelThree()
		limit := uint32(1000)
		d.do(&logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: &logv1.UpdateNamespace{Name: defaultName, CoresMax: &limit}}})
		var registrations []*logv1.Command
		for i := range nodes {
			registrations = append(registrations, registration(fmt.Sprint("node-", i), 1))
		}
		d.do(registrations...)
		x := &execution{s: d.state.Copy(), budget: 1 << 30}
		x.s.PutAction(&state.Action{ID: 1, Namespace: 1, Pool: 1, State: state.ActionQueued, CoresMin: 2, CoresMax: 2})
		x.reserveNode(x.s.Action(1), x.s.NodeByName("node-0"))
		took := shortest(func() { x.keepToLimit(1) })
		if x.s.Action(1).ReservedOn == 0 || x.s.HeldBy(1).Promised.Cores != 2 {
			t.Fatal("nothing is reserved: nothing is tested")
		}
		return took
	}
	few := cost(10)
	d.atMost(20, few, cost(3000))
}

// TestWhatANamespaceHasIsCounted: how many classes, policies and snapshots a namespace has is known
// without a look at each.
func TestWhatANamespaceHasIsCounted(t *testing.T) {
	d := newDriver(t)
	cost := func(n int) time.Duration {
		s := state.New()
		for i := 1; i <= n; i++ {
			s.PutClass(&state.Class{ID: state.ClassID(i), Namespace: 1, Name: fmt.Sprint(i)})
			s.PutPolicy(&state.Policy{Name: fmt.Sprint(i), Namespace: 1})
			s.PutPolicy(&state.Policy{Name: fmt.Sprint(i), Namespace: 1, Version: 2})
			s.PutFileSnapshot(&state.FileSnapshot{ID: state.FileSnapshotID(i), Namespace: 1, Node: 1, State: state.FileSnapshotReady})
		}
		s.PutFileSnapshot(&state.FileSnapshot{ID: 1, Namespace: 1, Node: 1, State: state.FileSnapshotLost})
		s.PutFileSnapshot(&state.FileSnapshot{ID: state.FileSnapshotID(n + 1), Namespace: 2, Node: 1, State: state.FileSnapshotReady})
		s.DeleteFileSnapshot(2)
		s.DeleteClass(1)
		s.DeletePolicy("1")
		took := shortest(func() { s.ClassesOf(1); s.PoliciesOf(1); s.LiveFileSnapshots(1) })
		if all, own := s.LiveFileSnapshots(1); s.ClassesOf(1) != n-1 || s.PoliciesOf(1) != n-1 || all != n-1 || own != n-2 {
			t.Errorf("of %d each: %d classes, %d policies, %d snapshots, %d of the namespace", n, s.ClassesOf(1), s.PoliciesOf(1), all, own)
		}
		return took
	}
	few := cost(10)
	d.atMost(20, few, cost(4000))
}

// TestTheFirstThatWaitsForALimit is found, however many older ones collect their cores already.
func TestTheFirstThatWaitsForALimit(t *testing.T) {
	d := newDriver(t)
	cost := func(n int) time.Duration {
		s := state.New()
		for i := 1; i <= n+2; i++ {
			ice := state.IceThawing
			if i > n {
				ice = state.IceLimited
			}
			id := state.ActionID(i)
			s.PutAction(&state.Action{ID: id, Namespace: 1, Pool: 1, State: state.ActionRunning, Node: 1})
			s.PutAttempt(&state.Attempt{Node: 1, Action: id, Ice: ice, Width: 1})
		}
		if a := s.FirstLimited(1); a == nil || a.ID != state.ActionID(n+1) || s.FirstLimited(0) != nil || s.FirstLimited(2) != nil {
			t.Errorf("the first that waits is %v, want action %d", a, n+1)
		}
		return shortest(func() { s.FirstLimited(1) })
	}
	few := cost(10)
	d.atMost(20, few, cost(4000))
}

// TestARolloutClosesInParts: the end of each trajectory is learned from, and one entry does not close
// thousands.
func TestARolloutClosesInParts(t *testing.T) {
	const groups = 2000
	d := newDriver(t)
	d.levelThree()
	d.do(&logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{Policy: "p", Groups: groups, SamplesPerGroup: 1}}})
	for g := range uint32(groups) {
		d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
			Rollout: &logv1.RolloutMembership{RolloutId: 1, Group: g}, Generation: &logv1.GenerationSpec{Policy: "p"},
		}}})
	}
	d.do(&logv1.Command{Verb: &logv1.Command_CloseRollout{CloseRollout: &logv1.CloseRollout{Id: 1}}})
	if left := d.state.Rollout(1).Counts.Running; left < groups-workBudget/8 {
		t.Errorf("one entry closed %d trajectories of %d", groups-left, groups)
	}
	d.settle()
	if r := d.state.Rollout(1); r.State != state.RolloutClosed || r.Counts.Running != 0 {
		t.Errorf("the rollout is in state %d, and %d of its trajectories run", r.State, r.Counts.Running)
	}
	d.check()
}
