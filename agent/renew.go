package agent

import (
	"context"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/agent/plan"
	"rota/internal/clock"
	"rota/internal/failpoint"
)

// renew asks for one renewal of the lease. After a failure every server is asked at
// once: to try them in turn, and to wait for each that hangs, would take longer than the
// lease.
func (a *agent) renew(ctx context.Context, step plan.Renew, pause *rounds) {
	req := &rotav1.RenewLeaseRequest{Name: a.cfg.Name, Incarnation: step.Incarnation}
	ask := call[*rotav1.RenewLeaseResponse]
	if step.All {
		ask = callAll[*rotav1.RenewLeaseResponse]
	}
	sent, began := clock.Boottime(), time.Now()
	resp, err := ask(ctx, a.servers, time.Duration(step.WithinNS), func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.RenewLeaseResponse, error) {
		return c.RenewLease(ctx, req)
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.metrics.renewals.WithLabelValues("failed").Inc()
		a.log.Debug("lease not renewed", "error", err)
		wait := pause.next(a.servers.count())
		a.driver.tell(func(p *plan.Plan, now int64) { p.NotRenewed(step.Number, now+int64(wait)) })
	default:
		a.metrics.renewed(resp.GetFenced(), began)
		pause.reset()
		failpoint.Hit(failpoint.LeaseRenewed)
		a.driver.tell(func(p *plan.Plan, now int64) { p.Renewed(step.Number, sent, resp.GetFenced(), now) })
	}
}
