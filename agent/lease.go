package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/agent/lease"
	"rota/internal/failpoint"
)

var (
	// errLeaseLost means that the lease ended before it was renewed.
	errLeaseLost = errors.New("the lease was not renewed in time")
	// errFenced means that the cluster has given up this incarnation.
	errFenced = errors.New("the cluster has given this node up")
)

// leasePoll bounds how late an expiry is noticed after the machine was
// suspended: timers stand still then, and the clock of the lease does not.
const leasePoll = 250 * time.Millisecond

// watchLease returns errLeaseLost at the deadline. It does not depend on any
// call.
func watchLease(ctx context.Context, l *lease.Lease) error {
	for {
		changed := l.Changed()
		if l.Expired() {
			l.End()
			return errLeaseLost
		}
		left := leasePoll
		if deadline := l.Deadline(); deadline != 0 {
			left = min(left, time.Duration(deadline-l.Now()))
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
	}
}

// renewer keeps a lease.
type renewer struct {
	lease   *lease.Lease
	servers *servers
	req     *rotav1.RenewLeaseRequest
	// renewed is called after every success.
	renewed func()
}

// run renews at a third of the lease until the cluster says that it has given
// the node up. After a failure every server is asked at once: to try them in
// turn, and to wait for each that hangs, would take longer than the lease.
func (r *renewer) run(ctx context.Context) error {
	duration := r.lease.Duration()
	pause := newRounds(duration/200, duration/12)
	for ask := call[*rotav1.RenewLeaseResponse]; ; {
		sent := r.lease.Now()
		resp, err := ask(ctx, r.servers, duration/6, func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.RenewLeaseResponse, error) {
			return c.RenewLease(ctx, r.req)
		})
		wait := duration/3 - time.Duration(r.lease.Now()-sent)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.servers.log.Debug("lease not renewed", "error", err)
			ask, wait = callAll[*rotav1.RenewLeaseResponse], pause.next(r.servers.count())
		case resp.GetFenced():
			return fmt.Errorf("renew lease: %w", errFenced)
		default:
			ask = call[*rotav1.RenewLeaseResponse]
			pause.reset()
			failpoint.Hit(failpoint.LeaseRenewed)
			r.lease.Extend(sent)
			r.renewed()
		}
		if backoff.Sleep(ctx, wait) != nil {
			return ctx.Err()
		}
	}
}
