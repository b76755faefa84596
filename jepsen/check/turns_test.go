package check

import (
	"fmt"
	"slices"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/jepsen/history"
)

// What a play does with jobs and turns: two jobs have a group each.

// beginJobs makes groups and the jobs that train on them.
func (p *play) beginJobs() {
	for _, name := range []string{"a", "b"} {
		group, nodes := &logv1.CreateNodeGroup{Name: "group-" + name, Nodes: 2}, int64(2)
		if name == "b" {
			nodes = 1 // so that it can do without a member that is lost
			group.Members = []*logv1.GroupMember{{Node: "n1", FirstGpu: 7, Gpus: 1}, {Node: "n2", FirstGpu: 7, Gpus: 1}}
		}
		p.commit(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: group}})
		op := history.Op{Client: 6, Verb: history.SubmitJob, RequestID: "job-" + name, Job: "job-" + name, Start: p.now, Outcome: history.OK}
		p.commit(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			Name: op.Job, Nodes: nodes, Request: &logv1.Request{Id: op.RequestID, Digest: 1},
		}}})
		p.jobOp(op)
		p.jobOp(history.Op{Client: 6, Verb: history.GetJob, Job: op.Job, State: "RUNNING", Start: p.now, Outcome: history.OK})
	}
}

func (p *play) jobOp(op history.Op) {
	p.now++
	op.End = p.now
	p.rec.Ops = append(p.rec.Ops, op)
}

// train holds a turn of one of the jobs.
func (p *play) train(round int) {
	name := []string{"a", "b"}[round%2]
	op := history.Op{
		Client: 6, Verb: history.Acquire, RequestID: fmt.Sprintf("turn-%d", round), Deployment: "job-" + name + "/actor", Start: p.now, Outcome: history.OK,
	}
	r := p.commit(&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{
		Job: "job-" + name, Deployment: "actor", Operation: 1, Request: &logv1.Request{Id: op.RequestID, Digest: 1},
	}}})
	op.IDs = []uint64{r.FirstId}
	h := history.Holding{Client: 6, Turn: r.FirstId, Deployment: op.Deployment, Start: p.now}
	p.machine.View(func(s *state.State) {
		t := s.Turn(state.TurnID(r.FirstId))
		op.State, h.Token = turnStateName(t.State), t.Token
		if g := s.NodeGroup(t.Group); g != nil {
			h.Group = g.Name
		}
	})
	p.jobOp(op)
	p.now += second / 20
	h.End = p.now
	p.now++
	end := &logv1.EndTurn{TurnId: h.Turn, Token: h.Token, Reason: 1}
	if h.Yielded = round%5 > 0; !h.Yielded {
		end.Reason = 2
	}
	p.commit(&logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: end}})
	p.rec.Holdings = append(p.rec.Holdings, h)
}

// endJobs deletes the jobs, and notes how their turns ended.
func (p *play) endJobs() {
	for _, name := range []string{"job-a", "job-b"} {
		op := history.Op{Client: 6, Verb: history.ChangeJob, Job: name, Change: history.Delete, Start: p.now, Outcome: history.OK}
		p.commit(&logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{Name: name, Change: 4}}})
		p.jobOp(op)
	}
	p.machine.View(func(s *state.State) {
		s.Turns(0, func(t *state.Turn) bool {
			p.rec.Turns = append(p.rec.Turns, history.Turn{ID: uint64(t.ID), State: turnStateName(t.State), Token: t.Token})
			return true
		})
	})
}

// yielded picks holdings of a job that gave their group back.
func yielded(job string) func(*history.Holding) bool {
	return func(h *history.Holding) bool { return h.Yielded && jobOf(h.Deployment) == job }
}

// holdsGPUs picks holdings of the group with members.
func holdsGPUs(h *history.Holding) bool { return h.Group == "group-b" }

// longer makes a holding with members so long that its holder has to hear of what happens, and
// returns it.
func longer(t *testing.T, r *history.Record) *history.Holding {
	t.Helper()
	h := pick(t, r.Holdings, holdsGPUs)
	h.End = h.Start + r.LeaseNS + second
	return h
}

// drainedFor adds that a node is drained during a holding, and put back long after it.
func drainedFor(r *history.Record, h *history.Holding, node string) {
	r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool { return op.Verb == history.Drain })
	r.Ops = append(r.Ops,
		history.Op{Verb: history.Drain, Node: node, Draining: true, Outcome: ok, Start: h.Start - 1, End: h.Start},
		history.Op{Verb: history.Drain, Node: node, Outcome: ok, Start: h.End + 1, End: h.End + 2})
}

var brokenMembers = []caseOf{
	{"gpus", "a turn beside an action", "GPU 7 of n1 has two users", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Holdings, holdsGPUs)
		r.Executions = append(r.Executions, history.Execution{
			Action: 9999, Attempt: 1, Node: "n1", GPUs: []int{7}, Asked: history.Asked{GPUs: []int{1}}, Start: h.Start + 1, Alive: h.End + 1, End: h.End + 1,
		})
	}},
	{"gpus", "an action that goes on when a turn begins", "GPU 7 of n2 has two users", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Holdings, holdsGPUs)
		r.Executions = append(r.Executions, history.Execution{
			Action: 9999, Attempt: 1, Node: "n2", GPUs: []int{7}, Asked: history.Asked{GPUs: []int{1}}, Start: h.Start - second, Alive: h.Start + 1, End: h.Start + 1,
		})
	}},
	{"turns", "a holder that is told of a loss that never was", "and the group lacked nothing of n2", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Holdings, holdsGPUs)
		h.Lacks = []history.Lack{{At: h.Start, Text: "1 of 2 members are there; n2:7: the node is down"}}
	}},
	{"turns", "a holder that is not told of a drained node", "was not told by", func(t *testing.T, r *history.Record) {
		drainedFor(r, longer(t, r), "n1")
	}},
	{"turns", "a holder that is told late of a drained node", "was not told by", func(t *testing.T, r *history.Record) {
		h := longer(t, r)
		drainedFor(r, h, "n1")
		h.Lacks = []history.Lack{{At: h.End, Text: "1 of 2 members are there; n1:7: the node is draining"}}
	}},
	{"turns", "a holder that is not told of a lost node", "was not told by", func(t *testing.T, r *history.Record) {
		h := longer(t, r)
		down := history.Op{Verb: history.GetNode, Node: "n1", State: "DOWN", Incarnation: 1, Outcome: ok}
		for _, at := range []int64{h.Start, h.End} {
			down.Start, down.End = at, at+1
			r.Ops = append(r.Ops, down)
		}
	}},
}

var unsuspiciousMembers = []caseOf{
	{name: "a drained node that is put back at once", change: func(t *testing.T, r *history.Record) {
		h := pick(t, r.Holdings, holdsGPUs)
		r.Ops = append(r.Ops,
			history.Op{Verb: history.Drain, Node: "n2", Draining: true, Outcome: unknown, Start: h.Start, End: h.Start + 1},
			history.Op{Verb: history.Drain, Node: "n2", Outcome: ok, Start: h.Start + 2, End: h.Start + 3})
	}},
}
