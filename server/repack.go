package server

import (
	"context"
	"time"

	"rota/fsm/state"
	"rota/sched/plan"
)

// repackEvery is how often a leader looks whether jobs should be on other groups.
const repackEvery = 30 * time.Second

// repack plans moves of jobs between groups and proposes them, until ctx is done,
// which is when leadership ends.
func (s *Server) repack(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(repackEvery):
		}
		jobs := 0
		s.machine.View(func(st *state.State) { jobs = st.JobCount() })
		if jobs == 0 {
			continue
		}
		moves := plan.Repack(s.machine.Fork())
		if len(moves) == 0 {
			continue
		}
		results, err := s.replica.ProposeLocal(ctx, moves...)
		if err != nil {
			s.logger.Warn("moves of jobs were not committed; planning anew later", "error", err)
			continue
		}
		for i, r := range results {
			if f := r.Refusal; f != nil {
				s.logger.Info("a job was not moved", "job", moves[i].GetMoveJob().JobId, "reason", f.Message)
			}
		}
	}
}
