package fsm

import (
	"math"
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
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
