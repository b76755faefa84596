package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/clock"
)

var (
	// ErrTurnLost says that a turn ended without its holder, or may have: its lease
	// was not renewed in time, or another client ended it. Another deployment may hold the
	// group. A LostError says which.
	ErrTurnLost = errors.New("the turn was lost")
	// ErrTurnSetUp says that a hook failed, so that the group could not be made ready.
	ErrTurnSetUp = errors.New("the group could not be made ready for the turn")
	// ErrTurnStop says that the holder of a turn is asked to yield.
	ErrTurnStop = errors.New("the turn is asked to stop")
)

// LostError is an ErrTurnLost that says how the turn was lost, as the cluster told it
// or because nobody did.
type LostError struct {
	Turn uint64
	Why  string
}

func (e *LostError) Error() string { return fmt.Sprintf("turn %d was lost: %s", e.Turn, e.Why) }

// Unwrap makes it an ErrTurnLost.
func (e *LostError) Unwrap() error { return ErrTurnLost }

// leaseParts is in how many parts of what a renewal is good for the next one is
// answered: a lease less its margin. The answer may take as long again to come, and a
// part is left for another server.
const leaseParts = 4

// leasePoll bounds how late it is noticed that a lease has run out while the machine
// slept: timers stand still then, and the clock of leases does not.
const leasePoll = 250 * time.Millisecond

// Hold is a turn while its holder has the group.
type Hold struct {
	lost chan struct{}
	// until is when work must have stopped, by clock.Boottime as with leases of nodes.
	until    atomic.Int64
	mu       sync.Mutex
	setUp    time.Duration
	degraded string
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

// Over reports whether the lease has run out as it is now. A process that stood still, for example
// because it was suspended, sees this before Lost is closed.
func (h *Hold) Over() bool { return clock.Boottime() >= h.until.Load() }

// SetUpTook says how long it took to bring the deployment onto the group. The cluster
// counts with that next time.
func (h *Hold) SetUpTook(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setUp = d
}

// Degraded says which members the group lacks now, and why; empty: it lacks none, as far as is
// known.
func (h *Hold) Degraded() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.degraded
}

func (h *Hold) setDegraded(text string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed = h.degraded != text
	h.degraded = text
	return changed
}

func (h *Hold) tookSetUp() *durationpb.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.setUp <= 0 {
		return nil
	}
	return durationpb.New(h.setUp)
}

// HoldOption is something more that HoldTurn does.
type HoldOption func(*holder)

// OnAcquired has fn called with the turn as soon as it has an ID. Most often it waits
// then; GetTurn says for what.
func OnAcquired(fn func(*rotav1.Turn)) HoldOption {
	return func(h *holder) { fn(proto.CloneOf(h.turn)) }
}

// OnDegraded has fn called with what the group lacks whenever that changes while the turn is
// held, from the goroutine that renews its lease: fn must not take long. Empty: it lacks none
// any more. Hold.Degraded and Turn.Degraded say what it lacks at the beginning.
func OnDegraded(fn func(degraded string)) HoldOption {
	return func(h *holder) { h.onDegraded = fn }
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
func (c *Client) HoldTurn(ctx context.Context, req *rotav1.AcquireTurnRequest, work func(ctx context.Context, t *rotav1.Turn) error, options ...HoldOption) error {
	h, err := c.acquire(ctx, req)
	if err != nil {
		return fmt.Errorf("acquire a turn: %w", err)
	}
	for _, o := range options {
		o(h)
	}
	if err := h.await(ctx); err != nil {
		return fmt.Errorf("wait for turn %d: %w", h.turn.Id, errors.Join(err, h.yield(ctx, nil, false)))
	}
	hold := h.hold
	hold.setDegraded(h.turn.Degraded)
	working, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, hold))
	defer cancel(nil)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost := make(chan error, 1)
	turn := proto.CloneOf(h.turn) // which a renewal replaces
	go func() { lost <- h.keep(keeping, hold, cancel) }()
	returned := false
	defer func() {
		if !returned { // work has panicked: nobody holds the turn any more
			cancel(nil)
			stop()
			if err := <-lost; err != nil {
				return // it is lost already
			}
			_ = h.yield(ctx, nil, true)
		}
	}()
	err = work(working, turn)
	returned = true
	stop()
	e := <-lost
	if e == nil && h.over() { // while this process stood still
		e = h.lost("its lease had run out when the work ended")
	}
	if e != nil {
		_ = h.yield(ctx, nil, true) // sooner than the lease would, if it was not taken yet
		return errors.Join(err, e)
	}
	switch e := h.yield(ctx, hold.tookSetUp(), err != nil); {
	case e == nil:
		return err
	case lostBefore(e):
		return errors.Join(err, h.lost(told(e)))
	default:
		return errors.Join(err, fmt.Errorf("yield turn %d: %w", turn.Id, e))
	}
}

// holder keeps the lease of one turn.
type holder struct {
	c             *Client
	turn          *rotav1.Turn
	lease, margin time.Duration
	hold          *Hold
	// onDegraded is told when other members are lacking; nil: nobody is.
	onDegraded func(string)
	// trouble is why the newest renewals failed, nil if the last one did not.
	trouble error
}

func (c *Client) acquire(ctx context.Context, req *rotav1.AcquireTurnRequest) (*holder, error) {
	req = proto.CloneOf(req)
	if req.Namespace == "" {
		req.Namespace = c.config.Namespace
	}
	var resp *rotav1.AcquireTurnResponse
	var sent int64
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		sent = clock.Boottime()
		resp, err = c.Turns.AcquireTurn(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	h := &holder{c: c, turn: resp.Turn, hold: &Hold{lost: make(chan struct{}), degraded: resp.Turn.GetDegraded()}, lease: resp.LeaseDuration.AsDuration(), margin: resp.LeaseMargin.AsDuration()}
	if !resp.Replayed { // else its lease began with an earlier call, at an unknown time
		h.renewedFrom(sent)
	}
	return h, nil
}

func (h *holder) renewedFrom(sent int64) { h.hold.until.Store(sent + int64(h.lease-h.margin)) }

// over reports whether the lease has run out.
func (h *holder) over() bool { return h.hold.Over() }

// fresh reports whether more than half of what a renewal is good for is left. Work
// starts only then: a grant may have been long on its way.
func (h *holder) fresh() bool {
	return h.hold.until.Load()-clock.Boottime() > int64(h.lease-h.margin)/2
}

func (h *holder) lost(why string) error { return &LostError{h.turn.Id, why} }

// leased returns a context that is done when the lease has run out as it is now.
func (h *holder) leased(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	until := h.hold.until.Load()
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

// await returns when the turn is held under a fresh lease. A held turn whose lease is
// old, or was never counted from a call, is renewed first. It gives up when no server has
// answered for RetryFor.
func (h *holder) await(ctx context.Context) error {
	var pause pacer
	heard := time.Now()
	for {
		switch h.turn.State {
		case rotav1.TurnState_TURN_STATE_HELD:
			if h.fresh() {
				return nil
			}
		case rotav1.TurnState_TURN_STATE_WAITING, rotav1.TurnState_TURN_STATE_SETTING_UP:
		default:
			return h.ungranted()
		}
		renewed, err := h.renew(ctx)
		switch again, delay := transient(err); {
		case err == nil && !renewed:
			return h.ungranted()
		case err == nil:
			pause, heard = pacer{}, time.Now()
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !again:
			return err
		case time.Since(heard) > h.c.config.RetryFor:
			return fmt.Errorf("no server has answered for %v: %w", h.c.config.RetryFor, err)
		default:
			if err := pause.wait(ctx, delay); err != nil {
				return err
			}
		}
	}
}

// ungranted is why a turn ended before it was held.
func (h *holder) ungranted() error {
	if h.turn.Message != "" {
		return fmt.Errorf("%w: %s", ErrTurnSetUp, h.turn.Message)
	}
	return h.lost(h.end(0))
}

// renew sends one renewal, which is answered when there is news or after a part of the
// lease; at once if the lease is not fresh.
func (h *holder) renew(ctx context.Context) (renewed bool, err error) {
	wait := (h.lease - h.margin) / leaseParts
	try, cancel := context.WithTimeout(ctx, 2*wait)
	defer cancel()
	if !h.fresh() {
		wait = 0
	}
	sent := clock.Boottime()
	resp, err := h.c.Turns.RenewTurn(try, &rotav1.RenewTurnRequest{
		TurnId: h.turn.Id, Token: h.turn.Token, Wait: durationpb.New(wait), StopKnown: h.turn.Stop,
		SettingUp: h.turn.State == rotav1.TurnState_TURN_STATE_SETTING_UP, KnownDegraded: &h.turn.Degraded,
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
	var pause pacer
	for ctx.Err() == nil {
		bounded, end := h.leased(ctx)
		renewed, err := h.renew(bounded)
		if err != nil {
			again, delay := transient(err)
			if bounded.Err() == nil {
				h.trouble = err
			}
			if (again || unusable(err)) && pause.wait(bounded, delay) == nil {
				end()
				continue
			}
		}
		end()
		switch {
		case err == nil && (!renewed || h.turn.State != rotav1.TurnState_TURN_STATE_HELD || h.turn.Token != token):
			return h.lose(hold, cancel, h.end(token)) // though the work may have ended just now
		case ctx.Err() != nil:
			return nil
		case err != nil && h.over():
			return h.lose(hold, cancel, h.unheard())
		case err != nil:
			return h.lose(hold, cancel, told(err))
		case h.turn.Stop:
			cancel(ErrTurnStop) // the lease goes on while it stops
		}
		if hold.setDegraded(h.turn.Degraded) && h.onDegraded != nil {
			h.onDegraded(h.turn.Degraded)
		}
		pause, h.trouble = pacer{}, nil
	}
	return nil
}

func (h *holder) lose(hold *Hold, cancel context.CancelCauseFunc, why string) error {
	err := h.lost(why)
	cancel(err)
	close(hold.lost)
	return err
}

// unheard says that a lease has run out, and what was in the way of its renewal.
func (h *holder) unheard() string {
	text := fmt.Sprintf("its lease of %v has run out, and no server has renewed it in time", h.lease)
	if h.trouble != nil {
		text += ": " + told(h.trouble)
	}
	return text
}

// end says what a server that did not renew a turn said of it.
func (h *holder) end(token uint64) string {
	switch t := h.turn; {
	case t.State == rotav1.TurnState_TURN_STATE_LOST:
		return "the cluster gave it up, since its lease was not renewed in time"
	case t.State == rotav1.TurnState_TURN_STATE_CANCELED:
		return "it was canceled by another client, or because its job was completed"
	case t.State == rotav1.TurnState_TURN_STATE_YIELDED:
		return "another client yielded it"
	case t.Token != token && token != 0:
		return fmt.Sprintf("another token counts: %d, not %d", t.Token, token)
	case t.Stop:
		return "it was asked to stop, has not for a whole lease, and is renewed no more"
	}
	return "its lease is renewed no more"
}

// lostBefore reports whether a turn could not be yielded since it had ended, or was
// another's.
func lostBefore(err error) bool {
	reason := Detail(err).GetReason()
	return reason == "TURN_ENDED" || reason == "TURN_FENCED"
}

// told is what a server said of a failure, or what went wrong on the way to it. It is
// known what has become of the turn, so nothing of it is an unknown outcome.
func told(err error) string {
	if d := Detail(err); d.GetMessage() != "" {
		return d.Message
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		return ce.Message()
	}
	return err.Error()
}

// yield ends the turn, though the caller may be gone. That it has ended already is no
// failure.
func (h *holder) yield(ctx context.Context, setUp *durationpb.Duration, failed bool) error {
	switch h.turn.State {
	case rotav1.TurnState_TURN_STATE_HELD, rotav1.TurnState_TURN_STATE_WAITING:
	case rotav1.TurnState_TURN_STATE_SETTING_UP:
		failed = true // it has nothing to yield
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
	var resp *rotav1.SubmitJobResponse
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		resp, err = c.Jobs.SubmitJob(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("submit job: %w", err)
	}
	return resp.Job, nil
}
