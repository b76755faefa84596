package plan_test

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/sched/plan"
)

// cluster applies what is proposed at once.
type cluster struct {
	*fsm.Machine
	t     *testing.T
	index uint64
	now   int64
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Machine: fsm.New(fsm.Options{}), t: t}
	c.apply(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c"}}})
	return c
}

func (c *cluster) apply(commands ...*logv1.Command) []*logv1.Result {
	c.t.Helper()
	c.index++
	c.now += int64(time.Second)
	data, err := (&logv1.Entry{TimeNs: c.now, Commands: commands}).MarshalVT()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.Apply(&raft.Log{Index: c.index, Data: data}).([]*logv1.Result)
}

func (c *cluster) group(name string) {
	c.apply(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: name, Nodes: 4}}})
}

// job submits a job that needs its group for 20 of 100 seconds; without a cycle if
// cold.
func (c *cluster) job(name string, cold bool) {
	second := int64(time.Second)
	s := &logv1.SubmitJob{Name: name, Nodes: 4, SetUpNs: 2 * second}
	if !cold {
		s.Cycle = &logv1.Cycle{PeriodNs: 100 * second, Segments: []*logv1.Segment{{LengthNs: 20 * second, Nodes: 4}}}
	}
	c.apply(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: s}})
}

// TestRepackEmptiesAGroup: two jobs that could share have a group each, and a third
// needs one for itself. The plan is carried out, and done a second time is refused.
func TestRepackEmptiesAGroup(t *testing.T) {
	c := newCluster(t)
	c.group("a")
	c.group("b")
	c.job("one", false)
	c.job("two", false)
	if moves := plan.Repack(c.Fork()); len(moves) != 0 {
		t.Fatalf("nobody wants a group, and %v is planned", moves)
	}
	c.job("cold", true)
	moves := plan.Repack(c.Fork())
	if len(moves) != 1 {
		t.Fatalf("planned %v, want one move", moves)
	}
	if r := c.apply(moves...); r[0].Refusal != nil {
		t.Fatal(r[0].Refusal)
	}
	if r := c.apply(moves...); r[0].GetRefusal().GetReason() != "MOVE_REFUSED" {
		t.Fatalf("a move is done twice: %v", r[0])
	}
	c.View(func(s *state.State) {
		one, two, cold := s.JobByName(1, "one"), s.JobByName(1, "two"), s.JobByName(1, "cold")
		if one.Group != two.Group || cold.Group == 0 || cold.Group == one.Group {
			t.Errorf("jobs are on groups %d, %d and %d", one.Group, two.Group, cold.Group)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
}

// TestHolderIsNotMoved: a job that holds its group stays.
func TestHolderIsNotMoved(t *testing.T) {
	c := newCluster(t)
	c.group("a")
	c.group("b")
	c.job("one", false)
	c.job("two", false)
	c.job("cold", true)
	for _, name := range []string{"one", "two"} {
		c.apply(&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: name, Deployment: "actor", ExpectNs: int64(10 * time.Second)}}})
	}
	if moves := plan.Repack(c.Fork()); len(moves) != 0 {
		t.Fatalf("all hold their groups, and %v is planned", moves)
	}
}
