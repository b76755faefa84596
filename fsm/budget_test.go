package fsm

import (
	"fmt"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/place"
)

// What is too much for one entry goes on in the next, and is right in between.

const many = 2*workBudget/lossCost + 100 // attempts that take three entries to settle

// busyNode has a node that runs so many actions without cores, each with a unit of a
// quota, and every other of them may be tried again. Trajectory 1 lives there too.
func busyNode(t *testing.T) *driver {
	d := newDriver(t)
	d.register("n", 8)
	d.do(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{Name: "q", Kind: 1, Limit: 1_000_000}}})
	d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: 1 << 30}}})
	c := &logv1.SubmitActions{}
	for i := range many {
		a := &logv1.Action{AttemptsMax: uint32(1 + i%2), Needs: &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "q", Units: 1}}}}
		if i < 10 {
			a.TrajectoryId = 1
		}
		c.Actions = append(c.Actions, a)
	}
	d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}})
	d.settle()
	if n := d.state.Counts().Running; n != many {
		t.Fatalf("%d actions run, want %d", n, many)
	}
	return d
}

func expire(n *state.Node) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: n.Name, Incarnation: n.Incarnation}}}
}

// refused applies a command that is to be refused.
func (d *driver) refused(reason string, c *logv1.Command) {
	d.Helper()
	if r := d.try(c)[0].Refusal; r == nil || r.Reason != reason {
		d.Errorf("refusal %v, want %s", r, reason)
	}
}

func (d *driver) check() {
	d.Helper()
	if err := d.state.Check(); err != nil {
		d.Fatal(err)
	}
}

func TestALostNodeIsSettledInParts(t *testing.T) {
	d := busyNode(t)
	n := d.state.NodeByName("n")
	reported := d.reported(many) // the last: it is settled last
	d.do(expire(n))
	d.check()
	left := int(d.state.NodeByName("n").Running)
	if lost := many - left; left == 0 || lost > workBudget/lossCost {
		t.Fatalf("one entry settled %d of %d attempts", lost, many)
	}
	d.refused("NODE_TEARDOWN", &logv1.Command{Verb: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Name: "n"}}})
	// What its agent says of an attempt that is not settled is true.
	d.do(reported)
	d.check()
	for d.state.HasWork() {
		d.do(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
		d.check()
	}
	c := d.state.Counts()
	if again := many/2 - 5 - 1; c.Running != 0 || c.Queued != again {
		t.Errorf("%d run and %d are queued again, want none and %d", c.Running, c.Queued, again)
	}
	if s := d.state.Action(many).State; s != state.ActionSucceeded {
		t.Errorf("what was reported in between is in state %d, want succeeded", s)
	}
	if s := d.state.Trajectory(1).State; s != state.TrajectoryLost {
		t.Errorf("the trajectory is in state %d, want lost", s)
	}
	d.do(&logv1.Command{Verb: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Name: "n"}}})
	d.check()
}

// TestANodeReturnsWhenItsWorkIsSettled: its new work must not be taken for the old.
func TestANodeReturnsWhenItsWorkIsSettled(t *testing.T) {
	d := busyNode(t)
	back := &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: "n", JournalId: "j", MemoryBytes: 256 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0, 1}}},
	}}}
	refused := 0
	for ; ; refused++ {
		r := d.try(back)[0]
		d.check()
		if r.Refusal == nil {
			break
		}
		if r.Refusal.Reason != "NODE_TEARDOWN" || refused > 10 {
			t.Fatalf("refused: %v", r.Refusal)
		}
	}
	if refused == 0 {
		t.Error("all was settled in one entry: nothing was tried")
	}
	d.settle()
	d.check()
	n := d.state.NodeByName("n")
	if n.State != state.NodeUp || int(n.Running) != many/2-5 {
		t.Errorf("node in state %d runs %d, want the %d that may be tried again", n.State, n.Running, many/2-5)
	}
}

// TestALargeTrajectoryClosesInParts, running actions among its others.
func TestALargeTrajectoryClosesInParts(t *testing.T) {
	d := newDriver(t)
	d.fillTrajectory()
	d.do(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: 1}}})
	if n := d.state.Counts().Queued; n == 0 {
		t.Error("one entry ended all")
	}
	d.settle()
	d.check()
	if n := d.state.Counts(); n.Queued != 0 || n.Running != 4 {
		t.Fatalf("%d queued and %d running, want only the 4 that are being stopped", n.Queued, n.Running)
	}
	for id := range state.ActionID(4) {
		d.do(d.reported(id + 1))
	}
	d.settle()
	if s := d.state.Trajectory(1).State; s != state.TrajectoryClosed {
		t.Errorf("trajectory in state %d, want closed", s)
	}
}

// TestEveryQueuedJobIsLookedAt although room comes free before a round of all of them
// has ended, each time.
func TestEveryQueuedJobIsLookedAt(t *testing.T) {
	d := newDriver(t)
	d.do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: 4}}})
	const jobs = 100 // the first has the group, the last needs no reservation
	for j := range jobs {
		d.do(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Name: fmt.Sprint(j), Nodes: 4, Backfill: j == jobs-1}}})
		d.freed()
	}
	for range jobs {
		d.freed()
	}
	if last := d.state.JobByName(1, fmt.Sprint(jobs-1)); last.Group == 0 {
		t.Error("the last job was never looked at")
	}
	d.settle()
	d.check()
}

// freed has all jobs looked at again, as when room comes free.
func (d *driver) freed() {
	d.Helper()
	d.do(&logv1.Command{Verb: &logv1.Command_ResumeLedger{ResumeLedger: &logv1.ResumeLedger{}}})
}

// TestTheBestOfManyGroupsIsFound: more groups than are looked at together, and the only
// one with room among them wherever it is.
func TestTheBestOfManyGroupsIsFound(t *testing.T) {
	const groups = 3*placeGroups + 5
	for _, wide := range []int{0, placeGroups - 1, placeGroups, 2 * placeGroups, groups - 1} {
		d := newDriver(t)
		for g := range groups {
			nodes := int64(2)
			if g == wide {
				nodes = 4
			}
			d.do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: fmt.Sprint(g), Nodes: nodes}}})
		}
		for name, job := range map[string]*logv1.SubmitJob{
			"cycle": submitBench("cycle", 270).GetSubmitJob(), "cold": {Nodes: 3}, "backfill": {Nodes: 3, Backfill: true},
		} {
			job.Name = name
			d.do(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: job}})
			d.settle()
			j := d.state.JobByName(1, name)
			if g := d.state.NodeGroup(j.Group); g == nil || g.Name != fmt.Sprint(wide) {
				t.Errorf("job %s is on %v (%s), want group %d", name, g, j.Message, wide)
			}
			d.do(&logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Name: name, Change: changeDelete}}})
			d.settle()
			d.check()
		}
	}
}

// TestALostNodeWithAModelInUseIsSettledInParts: what was resident is forgotten with the node, before
// the attempt that used it is settled.
func TestALostNodeWithAModelInUseIsSettledInParts(t *testing.T) {
	for _, retries := range []uint32{1, 2} {
		d := newDriver(t)
		node := &logv1.RegisterNode{
			Name: "n", JournalId: "j", MemoryBytes: 256 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0, 1, 2, 3}}},
			Gpus: &logv1.GpuInventory{Class: "H100", Count: 2, MemoryBytes: 80},
		}
		register := &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: node}}
		d.do(register)
		d.do(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{Name: "q", Kind: 1, Limit: 1_000_000}}})
		c := &logv1.SubmitActions{}
		for range many {
			c.Actions = append(c.Actions, &logv1.Action{AttemptsMax: 1, Needs: &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "q", Units: 1}}}})
		}
		c.Actions = append(c.Actions, &logv1.Action{AttemptsMax: retries, CoresMin: 1, CoresMax: 1, Needs: &logv1.Needs{
			Gpus: &logv1.Gpus{Degrees: []uint32{1}, MemoryBytes: 40, Model: "judge"},
		}})
		d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}})
		d.settle()
		n := d.state.NodeByName("n")
		if len(d.state.ModelsOn(n.ID)) != 1 || n.Running != many+1 {
			t.Fatalf("%d actions run and %d models are resident, want %d and 1", n.Running, len(d.state.ModelsOn(n.ID)), many+1)
		}
		d.do(expire(n))
		d.check()
		if d.state.Action(many+1).State != state.ActionRunning || len(d.state.ModelsOn(n.ID)) != 0 {
			t.Fatalf("after one entry the action with the model is in state %d, and %d models are resident", d.state.Action(many+1).State, len(d.state.ModelsOn(n.ID)))
		}
		d.settle()
		d.check()
		if n := d.state.NodeByName("n"); n.Running != 0 || n.GPUs.Free != state.AllGPUs(2) {
			t.Errorf("all is settled, and %d run, GPUs %v are free", n.Running, n.GPUs.Free.Slice())
		}
		want := state.ActionLost
		if retries > 1 {
			want = state.ActionQueued
		}
		if s := d.state.Action(many + 1).State; s != want {
			t.Errorf("the action with the model is in state %d, want %d", s, want)
		}
		d.do(register)
		d.settle()
		d.check()
	}
}

// TestNoSnapshotOnALostNode: a trajectory whose node is lost may be open for another entry, and
// nothing is kept of its files.
func TestNoSnapshotOnALostNode(t *testing.T) {
	d := newDriver(t)
	d.register("full", 1)
	d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
	open := &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: 1}}}
	for range place.TrajectoriesPerNodeMax { // their ends are all that one entry does
		d.do(open)
	}
	d.register("n", 1)
	last := d.do(open)[0].FirstId
	if n := d.state.Trajectory(state.TrajectoryID(last)).Node; n != d.state.NodeByName("n").ID {
		t.Fatalf("trajectory %d is on node %d", last, n)
	}
	snapshot := &logv1.Command{Verb: &logv1.Command_ChangeSnapshot{ChangeSnapshot: &logv1.ChangeSnapshot{
		Change: &logv1.ChangeSnapshot_Create{Create: &logv1.CreateSnapshot{TrajectoryId: last}},
	}}}
	r := d.try(expire(d.state.NodeByName("full")), expire(d.state.NodeByName("n")), snapshot)
	if r[2].Refusal == nil || r[2].Refusal.Reason != "TRAJECTORY_ENDED" || d.state.Trajectory(state.TrajectoryID(last)).State != state.TrajectoryOpen {
		t.Errorf("the snapshot is answered with %v", r[2])
	}
	d.check()
}
