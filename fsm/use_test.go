package fsm

import (
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// TestUse: what an attempt held counts when it ends, also one that was lost, and cores that were
// changed on the way count for as long as they were held.
func TestUse(t *testing.T) {
	u := state.NamespaceUse{}
	cores := state.CoreSet{0b1111}
	second := int64(time.Second)
	u.AddAttempt(&state.Attempt{
		Cores: cores, StartedAt: 10 * second, CoreNS: uint64(6 * second), ResizedAt: 12 * second,
		Chunk: state.Chunk{First: 2, Units: 2}, Reserved: 3 << 30,
	}, 20*second)
	want := state.NamespaceUse{CoreUS: 38_000_000, GPUUS: 20_000_000, MemoryMiBS: 3 * 1024 * 10, Attempts: 1}
	if u != want {
		t.Errorf("%+v, want %+v", u, want)
	}
	// Nothing is lost of short attempts, and a PiB for ten years is no problem.
	u = state.NamespaceUse{}
	for range 1000 {
		u.AddAttempt(&state.Attempt{Reserved: 1 << 20}, second/1000)
	}
	if u.MemoryMiBS != 1 || u.MemoryRest != 0 {
		t.Errorf("%+v", u)
	}
	u.AddAttempt(&state.Attempt{Reserved: 1 << 50}, 10*365*24*3600*second)
	if u.MemoryMiBS != (1<<30)*10*365*24*3600+1 {
		t.Errorf("%+v", u)
	}
}

// TestUseIsCounted: reports and the end of actions are counted by namespace, and forgotten with it.
func TestUseIsCounted(t *testing.T) {
	d := newDriver(t)
	d.registerNodes(1, 4)
	d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: uint32(state.LevelMax), Release: "r"}}})
	d.do(submission(3))
	ns := d.state.NamespaceByName("default").ID
	if u := d.state.Use(ns); u != nil {
		t.Errorf("before anything ended: %+v", u)
	}
	d.now += int64(time.Second)
	d.do(d.reported(1))
	u := *d.state.Use(ns)
	if u.Attempts != 1 || u.Ended != 1 || u.Succeeded != 1 || u.CoreUS < 1_000_000 || u.CoreUS > 1_001_000 {
		t.Errorf("%+v", u)
	}
	d.do(&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: "node-0", Incarnation: 1}}})
	d.settle()
	if u := d.state.Use(ns); u.Attempts != 3 || u.Ended != 3 || u.Succeeded != 1 {
		t.Errorf("after the node was lost: %+v", u)
	}
	if err := d.state.Check(); err != nil {
		t.Error(err)
	}
}

// TestMemoryOfTrajectories: it counts from the time at which a trajectory has a node to its end, also
// before the end.
func TestMemoryOfTrajectories(t *testing.T) {
	d := newDriver(t)
	node := registration("node-0", 4)
	node.GetRegisterNode().MemoryBytes = 4 << 30
	d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: uint32(state.LevelMax), Release: "r"}}})
	open := func(memory uint64) {
		d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{MemoryBytes: memory}}})
	}
	wait := func() { d.now += 10 * int64(time.Second) }
	open(1 << 30) // waits for the node
	wait()
	d.do(node)
	wait()
	open(2 << 30)
	wait()
	d.do(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: 1}}})
	wait()
	id := d.state.NamespaceByName("default").ID
	u := *d.state.Use(id)
	if u.MemoryMiBS < 10*1024+10*3*1024 || u.MemoryMiBS > 41*1024 {
		t.Errorf("after one has ended: %+v", u)
	}
	d.do(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	u = *d.state.UseNow(id)
	if u.MemoryMiBS < 60*1024 || u.MemoryMiBS > 61*1024 {
		t.Errorf("ten seconds later: %+v", u)
	}
	if held := d.state.HeldBy(id).Memory; held != 2<<30 {
		t.Errorf("%d bytes are held", held)
	}
	if err := d.state.Check(); err != nil {
		t.Error(err)
	}
}
