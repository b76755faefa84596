package agent

import (
	"context"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// freeze freezes an attempt, or lets it go on. If that fails, the plan tries again. A call without
// an answer might be served after a later one, unless its connection is given up.
func (s *steps) freeze(step plan.Freeze, conn runtime.Runtime) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	err := conn.Freeze(ctx, step.Key, step.Frozen)
	if err != nil && ctx.Err() == nil {
		s.log.Debug("an attempt was not frozen, or does not go on yet; trying on", "action", step.Key.Action, "attempt", step.Key.Attempt, "error", err)
	}
	if ctx.Err() != nil {
		_ = conn.Close()
	}
	s.driver.tell(func(p *plan.Plan, now int64) { p.Froze(step.Connection, step.Key, step.Frozen, err == nil, now) })
}

// reportFrozen tells the cluster what is frozen. What no server confirms is reported again, after a
// pause.
func (a *agent) reportFrozen(ctx context.Context, step plan.ReportFrozen, pause *rounds) {
	req := &rotav1.ReportFrozenRequest{Name: a.cfg.Name, Incarnation: step.Incarnation}
	for _, f := range step.Attempts {
		req.Attempts = append(req.Attempts, &rotav1.FrozenAttempt{ActionId: f.Key.Action, Attempt: f.Key.Attempt, Pause: f.Pause})
	}
	_, err := call(ctx, a.servers, reportTimeout,
		func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportFrozenResponse, error) {
			return c.ReportFrozen(ctx, req)
		})
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		pause.reset()
	default:
		a.log.Warn("what is frozen is not reported yet; trying on", "attempts", len(step.Attempts), "error", err)
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return
		}
	}
	a.driver.tell(func(p *plan.Plan, _ int64) { p.FrozenReported(step.Attempts, err == nil) })
}
