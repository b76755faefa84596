package server

import (
	"time"

	"rota/fsm/state"
)

// trace makes the spans of an attempt that a node is told of, from when its action was submitted,
// and returns the context that the agent continues.
func (s *Server) trace(parent string, a *state.Action, t *state.Attempt) string {
	if parent == "" || s.cfg.Tracer == nil {
		return parent
	}
	now, logNow := time.Now(), s.logTime()
	at := func(log int64) time.Time { return now.Add(-time.Duration(max(0, logNow-log))) }
	if t.Number == 1 {
		s.cfg.Tracer.Record(parent, "queue", at(a.SubmittedAt), at(t.StartedAt))
	}
	span := s.cfg.Tracer.Continue(parent, "dispatch", at(t.StartedAt))
	span.Set("rota.action", uint64(a.ID))
	span.Set("rota.attempt", uint64(t.Number))
	span.End(now)
	return span.Context()
}
