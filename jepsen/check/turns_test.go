package check

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/jepsen/history"
)

// What a play does with jobs and turns: two jobs have a group each.

// beginJobs makes groups and the jobs that train on them.
func (p *play) beginJobs() {
	for _, name := range []string{"a", "b"} {
		p.commit(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "group-" + name, Nodes: 2}}})
		op := history.Op{Client: 6, Verb: history.SubmitJob, RequestID: "job-" + name, Job: "job-" + name, Start: p.now, Outcome: history.OK}
		p.commit(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			Name: op.Job, Nodes: 2, Request: &logv1.Request{Id: op.RequestID, Digest: 1},
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
