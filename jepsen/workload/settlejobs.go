package workload

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// jobs are deleted. Each stays until its last turn has ended.
func (s *settler) jobs(ctx context.Context) (left []string, err error) {
	list, err := s.api.Jobs.ListJobs(ctx, &rotav1.ListJobsRequest{IncludeEnded: true})
	for _, j := range list.GetJobs() {
		left = append(left, fmt.Sprintf("job %s is %s with %d turns", j.Name, plain(j.State.String(), "JOB_STATE_"), j.LiveTurns))
		if !j.Deleting {
			s.changeJob(ctx, j.Name, history.Delete)
		}
	}
	return left, err
}

// turns that have not ended.
func (s *settler) turns(ctx context.Context) (left []string, err error) {
	list, err := s.api.Turns.ListTurns(ctx, &rotav1.ListTurnsRequest{})
	for _, t := range list.GetTurns() {
		left = append(left, fmt.Sprintf("turn %d of %s/%s is %s", t.Id, t.Job, t.Deployment, turnState(t)))
	}
	return left, err
}

// ledger is what is held or reserved of node groups, or stands still there.
func (s *settler) ledger(ctx context.Context) (left []string, err error) {
	view, err := s.api.Ledger.GetLedger(ctx, &rotav1.GetLedgerRequest{})
	for _, l := range view.GetGroups() {
		g := l.Group
		if g.TurnId != 0 || g.Jobs+g.BackfillJobs != 0 || len(l.Intervals) != 0 || g.Halted != "" {
			left = append(left, fmt.Sprintf("node group %s is held by turn %d, has %d and %d jobs and %d reservations %s",
				g.Name, g.TurnId, g.Jobs, g.BackfillJobs, len(l.Intervals), g.Halted))
		}
	}
	if halted := view.GetHalted(); halted != "" {
		left = append(left, "placing jobs is halted: "+halted)
	}
	return left, err
}

// finalTurns records how all turns ended that were acknowledged, but those that are
// not there any more.
func (s *settler) finalTurns(ctx context.Context) error {
	var turns []history.Turn
	seen := map[uint64]bool{}
	for _, op := range s.env.Record.Record().Ops {
		if op.Verb != history.Acquire || len(op.IDs) == 0 || seen[op.IDs[0]] {
			continue
		}
		seen[op.IDs[0]] = true
		got, err := s.api.Turns.GetTurn(ctx, &rotav1.GetTurnRequest{TurnId: op.IDs[0]})
		var refusal *connect.Error
		switch {
		case err == nil:
			turns = append(turns, history.Turn{ID: got.Turn.Id, State: turnState(got.Turn), Token: got.Turn.Token})
		case errors.As(err, &refusal) && refusal.Code() == connect.CodeNotFound:
		default:
			return fmt.Errorf("read turn %d: %w", op.IDs[0], err)
		}
	}
	s.env.Record.Update(func(rec *history.Record) { rec.Turns = turns })
	return nil
}
