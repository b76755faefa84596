package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/clock"
)

var (
	// ErrTurnLost says that a turn ended without its holder, or may have: its lease
	// was not renewed in time. Another deployment may hold the group.
	ErrTurnLost = errors.New("the turn was lost: its lease was not renewed in time, or somebody ended it")
	// ErrTurnStop says that the holder of a turn is asked to yield.
	ErrTurnStop = errors.New("the turn is asked to stop")
)

// leaseParts is in how many parts of what a renewal is good for the next one is
// answered: a lease less its margin. The answer may take as long again to come, and a
// part is left for another server.
const leaseParts = 4

// leasePoll bounds how late it is noticed that a lease has run out while the machine
// slept: timers stand still then, and the clock of leases does not.
const leasePoll = 250 * time.Millisecond

// Hold is a turn while its holder has the group.
type Hold struct {
	lost  chan struct{}
	mu    sync.Mutex
	setUp time.Duration
}

type holdKey struct{}

// HoldOf returns the hold that a context of HoldTurn is of, nil for another.
func HoldOf(ctx context.Context) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	return h
}

// Lost is closed when the turn is lost. The context of a holder that was asked to stop
// is done before.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// SetUpTook says how long it took to bring the deployment onto the group. The cluster
// counts with that next time.
func (h *Hold) SetUpTook(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setUp = d
}

func (h *Hold) tookSetUp() *durationpb.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.setUp <= 0 {
		return nil
	}
	return durationpb.New(h.setUp)
}

// HoldTurn acquires a turn, waits for it, and calls work while it is held, renewing its
// lease in the background. Then it yields. Leaders may change meanwhile.
//
// The context of work is done, with ErrTurnLost as its cause, when the lease may run
// out: a margin before that, counted from when the newest renewal that was answered
// had been sent, on a clock that goes on while the machine sleeps. With ErrTurnStop it
// is done when the cluster asks the holder to yield; the lease is still renewed then,
// until work returns or the cluster has no more patience (Hold.Lost). Work must have
// stopped using the nodes when it returns.
//
// The error is that of work, or ErrTurnLost. After either the cluster does not count on
// the deployment being on the group any more.
func (c *Client) HoldTurn(ctx context.Context, req *rotav1.AcquireTurnRequest, work func(ctx context.Context, t *rotav1.Turn) error) error {
	h, err := c.acquire(ctx, req)
	if err != nil {
		return fmt.Errorf("acquire a turn: %w", err)
	}
	if err := h.await(ctx); err != nil {
		return fmt.Errorf("wait for turn %d: %w", h.turn.Id, errors.Join(err, h.yield(ctx, nil, false)))
	}
	hold := &Hold{lost: make(chan struct{})}
	working, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, hold))
	defer cancel(nil)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost := make(chan error, 1)
	go func() { lost <- h.keep(keeping, hold, cancel) }()
	turn := proto.CloneOf(h.turn)
	err = work(working, turn)
	stop()
	if e := <-lost; e != nil {
		_ = h.yield(ctx, nil, true) // sooner than the lease would, if it was not taken yet
		return errors.Join(err, e)
	}
	if e := h.yield(ctx, hold.tookSetUp(), err != nil); e != nil {
		return errors.Join(err, fmt.Errorf("yield turn %d: %w", turn.Id, e))
	}
	return err
}

// holder keeps the lease of one turn.
type holder struct {
	c             *Client
	turn          *rotav1.Turn
	lease, margin time.Duration
	// until is when work must have stopped, by clock.Boottime as with leases of nodes.
	until int64
}

func (c *Client) acquire(ctx context.Context, req *rotav1.AcquireTurnRequest) (*holder, error) {
	req = proto.CloneOf(req)
	if req.Namespace == "" {
		req.Namespace = c.config.Namespace
	}
	if req.RequestId == "" {
		var err error
		if req.ExpireTime, err = c.expiry(ctx); err != nil {
			return nil, err
		}
		req.RequestId = c.requestID()
	}
	sent := clock.Boottime()
	resp, err := c.Turns.AcquireTurn(ctx, req)
	if err != nil {
		return nil, err
	}
	h := &holder{c: c, turn: resp.Turn, lease: resp.LeaseDuration.AsDuration(), margin: resp.LeaseMargin.AsDuration()}
	if !resp.Replayed { // else its lease began with an earlier call, whose time nobody knows
		h.renewedFrom(sent)
	}
	return h, nil
}

func (h *holder) renewedFrom(sent int64) { h.until = sent + int64(h.lease-h.margin) }

// leased returns a context that is done when the lease has run out as it is now.
func (h *holder) leased(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	until := h.until
	go func() {
		defer cancel()
		for left := until - clock.Boottime(); left > 0; left = until - clock.Boottime() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(time.Duration(left), leasePoll)):
			}
		}
	}()
	return ctx, cancel
}

// await returns when the turn is held, under a lease that has been counted from a call.
func (h *holder) await(ctx context.Context) error {
	var pause backoff
	for {
		switch h.turn.State {
		case rotav1.TurnState_TURN_STATE_HELD:
			if !h.until.IsZero() {
				return nil
			}
		case rotav1.TurnState_TURN_STATE_WAITING:
		default:
			return ErrTurnLost
		}
		renewed, err := h.renew(ctx)
		switch again, delay := transient(err); {
		case err == nil && !renewed:
			return ErrTurnLost
		case err == nil:
			pause = backoff{}
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !again:
			return err
		default:
			if err := pause.wait(ctx, delay); err != nil {
				return err
			}
		}
	}
}

// renew sends one renewal, which is answered when there is news or after a part of the
// lease; at once if nothing has been counted yet.
func (h *holder) renew(ctx context.Context) (renewed bool, err error) {
	wait := (h.lease - h.margin) / leaseParts
	try, cancel := context.WithTimeout(ctx, 2*wait)
	defer cancel()
	sent := clock.Boottime()
	resp, err := h.c.Turns.RenewTurn(try, &rotav1.RenewTurnRequest{
		TurnId: h.turn.Id, Token: h.turn.Token, Wait: durationpb.New(wait), StopKnown: h.turn.Stop,
	})
	if err != nil {
		if ctx.Err() == nil && try.Err() != nil {
			h.c.servers.failed(h.c.servers.pick()) // it does not answer
		}
		return false, err
	}
	if resp.Turn.Revision >= h.turn.Revision {
		h.turn = resp.Turn
	}
	if resp.Renewed {
		h.renewedFrom(sent)
	}
	return resp.Renewed, nil
}

// keep renews the lease until ctx is done. It cancels the work when the turn is to
// stop, and when it is lost, which is its error.
func (h *holder) keep(ctx context.Context, hold *Hold, cancel context.CancelCauseFunc) error {
	token := h.turn.Token
	var pause backoff
	for ctx.Err() == nil {
		bounded, end := h.leased(ctx)
		renewed, err := h.renew(bounded)
		if err != nil {
			again, delay := transient(err)
			if again && pause.wait(bounded, delay) == nil {
				end()
				continue
			}
		}
		end()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil || !renewed || h.turn.State != rotav1.TurnState_TURN_STATE_HELD || h.turn.Token != token:
			return lose(hold, cancel, err)
		case h.turn.Stop:
			cancel(ErrTurnStop) // the lease goes on while it stops
		}
		pause = backoff{}
	}
	return nil
}

func lose(hold *Hold, cancel context.CancelCauseFunc, why error) error {
	err := ErrTurnLost
	if why != nil {
		err = fmt.Errorf("%w: %w", ErrTurnLost, why)
	}
	cancel(err)
	close(hold.lost)
	return err
}

// yield ends the turn, though the caller may be gone. That it has ended already is no
// failure.
func (h *holder) yield(ctx context.Context, setUp *durationpb.Duration, failed bool) error {
	switch h.turn.State {
	case rotav1.TurnState_TURN_STATE_HELD, rotav1.TurnState_TURN_STATE_WAITING:
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.lease)
	defer cancel()
	req := &rotav1.YieldTurnRequest{TurnId: h.turn.Id, Token: h.turn.Token, SetUp: setUp, Failed: failed}
	_, err := h.c.Turns.YieldTurn(ctx, req)
	if d := Detail(err); req.Token == 0 && d.GetReason() == "TURN_FENCED" { // granted meanwhile
		got, e := h.c.Turns.GetTurn(ctx, &rotav1.GetTurnRequest{TurnId: h.turn.Id})
		if e != nil {
			return e
		}
		req.Token = got.Turn.Token
		_, err = h.c.Turns.YieldTurn(ctx, req)
	}
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil
	}
	return err
}

// SubmitJob submits a job. A request without an ID gets one, so that it may be repeated.
func (c *Client) SubmitJob(ctx context.Context, req *rotav1.SubmitJobRequest) (*rotav1.Job, error) {
	req = proto.CloneOf(req)
	if req.Namespace == "" {
		req.Namespace = c.config.Namespace
	}
	if req.RequestId == "" {
		var err error
		if req.ExpireTime, err = c.expiry(ctx); err != nil {
			return nil, fmt.Errorf("submit job: %w", err)
		}
		req.RequestId = c.requestID()
	}
	resp, err := c.Jobs.SubmitJob(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("submit job: %w", err)
	}
	return resp.Job, nil
}
