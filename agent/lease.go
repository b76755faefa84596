package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
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

// patienceMin keeps a small margin from taking a busy machine for a frozen one.
const patienceMin = 200 * time.Millisecond

// lease is the right to run attempts until a deadline, by this node's own
// CLOCK_BOOTTIME. A renewal counts from when it was sent, and the deadline is
// a margin before its end, so everything is dead before the servers, who count
// from when they got it and a margin longer, give the node up.
type lease struct {
	now func() int64

	mu       sync.Mutex
	changed  chan struct{}
	duration time.Duration
	margin   time.Duration
	deadline int64 // 0: none yet
	lost     bool  // until begin
}

func newLease(now func() int64) *lease { return &lease{now: now, changed: make(chan struct{})} }

// begin starts anew without a deadline, by the terms of a registration.
func (l *lease) begin(duration, margin time.Duration) {
	l.update(func() { l.duration, l.margin, l.deadline, l.lost = duration, margin, 0, false })
}

// end gives the lease up.
func (l *lease) end() {
	l.update(func() { l.lost = true })
}

// extend counts a renewal that was sent at the given time. A lease that has
// ended stays so: what it allowed is being killed.
func (l *lease) extend(sent int64) {
	l.update(func() {
		if l.expired() {
			l.lost = true
			return
		}
		l.deadline = max(l.deadline, sent+int64(l.duration-l.margin))
	})
}

// expired says that there was a lease, and there is none now.
func (l *lease) expired() bool { return l.lost || l.deadline != 0 && l.now() >= l.deadline }

// held returns the deadline until which attempts may run, 0 if they may not.
func (l *lease) held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expired() {
		return 0
	}
	return l.deadline
}

func (l *lease) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lease) wait() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// patience is how long the supervisor gets to kill what must die: a part of
// the margin, so that there is time for another way.
func (l *lease) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.margin/3, patienceMin)
}

// watch returns errLeaseLost at the deadline. It does not depend on any call.
func (l *lease) watch(ctx context.Context) error {
	for {
		l.mu.Lock()
		expired, left, changed := l.expired(), leasePoll, l.changed
		if l.deadline != 0 {
			left = min(left, time.Duration(l.deadline-l.now()))
		}
		l.mu.Unlock()
		if expired {
			l.end()
			return errLeaseLost
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
	*lease
	servers *servers
	req     *rotav1.RenewLeaseRequest
	// renewed is called after every success.
	renewed func()
}

// run renews at a third of the lease until the cluster says that it has given
// the node up. After a failure every server is asked at once: to try them in
// turn, and to wait for each that hangs, would take longer than the lease.
func (r *renewer) run(ctx context.Context) error {
	duration := r.duration
	pause := newBackoff(duration/200, duration/12)
	for ask := call[*rotav1.RenewLeaseResponse]; ; {
		sent := r.now()
		resp, err := ask(ctx, r.servers, duration/6, func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.RenewLeaseResponse, error) {
			return c.RenewLease(ctx, r.req)
		})
		wait := duration/3 - time.Duration(r.now()-sent)
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
			r.extend(sent)
			r.renewed()
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}
