package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
)

// ErrUnknownOutcome is returned when a call was given up whose answer may have
// been lost: what it asked for may or may not have been done.
var ErrUnknownOutcome = errors.New("outcome unknown: it may or may not have been done")

// Bounds of one batch. Servers accept 4,096 actions and 4 MiB.
const (
	batchActionsMax = 4096
	batchBytesMax   = 3 << 20
)

// Submit queues actions, all of them or none, and returns their IDs. It is
// repeated until a server has answered, RetryFor is over or ctx is done, and
// takes effect at most once.
//
// Submissions made while others are on their way are sent together. Each is
// accepted or refused on its own. When servers refuse one because the queue is full, or
// for other overload, all submissions of this client wait until the servers want to see
// more, and are then sent together, at most a quarter more at a time than was accepted
// before. One whose RetryFor is over before then ends at once, with what the servers said.
func (c *Client) Submit(ctx context.Context, specs ...*rotav1.ActionSpec) ([]uint64, error) {
	resp, err := c.SubmitEstimated(ctx, specs...)
	return resp.GetIds(), err
}

// SubmitEstimated is Submit, and returns the whole answer: with it comes when each of the
// actions is expected to start.
func (c *Client) SubmitEstimated(ctx context.Context, specs ...*rotav1.ActionSpec) (*rotav1.SubmitActionsResponse, error) {
	req := &rotav1.SubmitActionsRequest{Namespace: c.config.Namespace, RequestId: c.requestID(), Actions: inTrace(ctx, specs)}
	s := &submission{
		ctx: ctx, req: req, size: req.SizeVT() + 32,
		giveUp: time.Now().Add(c.config.RetryFor), done: make(chan struct{}),
	}
	c.batcher.add(s)
	select {
	case <-s.done:
		return s.resp, s.err
	case <-ctx.Done():
		return nil, fmt.Errorf("submit actions: %w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// submission is one call of Submit on its way.
type submission struct {
	ctx    context.Context
	req    *rotav1.SubmitActionsRequest
	size   int // bytes in a batch, about
	giveUp time.Time
	// unsure: an earlier try may have been accepted.
	unsure bool
	// sent is when it was first sent without an expiry; zero if it never was.
	sent time.Time

	done chan struct{}
	resp *rotav1.SubmitActionsResponse
	err  error
}

func (s *submission) end(resp *rotav1.SubmitActionsResponse, err error) {
	if err != nil {
		err = fmt.Errorf("submit actions: %w", err)
	}
	s.resp, s.err = resp, err
	close(s.done)
}

// batcher sends submissions together.
type batcher struct {
	client *Client

	mu       sync.Mutex
	pending  []*submission
	flying   int // goroutines that send, or wait to
	throttle throttle
}

// add queues a submission and makes sure that it is sent.
func (b *batcher) add(s *submission) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client.closing.Err() != nil {
		s.end(nil, unknownIf(s.unsure, errClosed))
		return
	}
	if b.throttle.wait(time.Now()) > 0 && b.throttle.until.After(s.giveUp) {
		s.end(nil, unknownIf(s.unsure, b.throttle.refusal))
		return
	}
	b.pending = append(b.pending, s)
	b.fly()
}

// fly makes sure that what is pending is sent.
func (b *batcher) fly() {
	if b.flying < b.client.config.InFlight {
		b.flying++
		b.client.wg.Go(b.send)
	}
}

// send sends batch after batch until nothing is pending.
func (b *batcher) send() {
	for {
		batch, wait := b.take()
		switch {
		case wait > 0:
			_ = backoff.Sleep(b.client.closing, wait) // a closed client ends what is pending
		case len(batch) == 0:
			return
		default:
			b.client.submitBatch(batch)
		}
	}
}

// take removes the next batch from what is pending, or says how long to wait for it. With
// neither, the caller must end: it no longer counts as flying.
func (b *batcher) take() (batch []*submission, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client.closing.Err() != nil {
		for _, s := range b.pending {
			s.end(nil, unknownIf(s.unsure, errClosed))
		}
		b.pending = nil
	}
	now := time.Now()
	if b.throttle.on() && b.flying > 1 {
		b.flying--
		return nil, 0 // the other one goes on
	}
	if wait = b.throttle.wait(now); wait > 0 && len(b.pending) > 0 {
		return nil, wait
	}
	most, actions, size := b.throttle.most(), 0, 0
	for len(b.pending) > 0 {
		s := b.pending[0]
		actions += len(s.req.Actions)
		size += s.size
		if len(batch) > 0 && (actions > most || size > batchBytesMax) {
			return batch, 0
		}
		b.pending[0] = nil
		b.pending = b.pending[1:]
		switch {
		case s.ctx.Err() != nil: // no caller waits for it any more
		case b.throttle.on() && now.After(s.giveUp):
			s.end(nil, unknownIf(s.unsure, b.throttle.refusal))
		default:
			batch = append(batch, s)
			continue
		}
		actions -= len(s.req.Actions)
		size -= s.size
	}
	b.pending = nil
	if len(batch) == 0 {
		b.flying--
	}
	return batch, 0
}

// accepted notes that no submission of a batch was refused for overload.
func (b *batcher) accepted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.throttle.accepted(len(b.pending) == 0)
	if !b.throttle.on() && len(b.pending) > 0 {
		b.fly()
	}
}

// refused puts those of a batch back that were refused for overload: before all others, or behind
// them if none was accepted. So one that is too large for what room there is does not keep
// smaller ones from it.
func (b *batcher) refused(sent, accepted int, delay time.Duration, refusal error, back []*submission) {
	if told := b.client.config.Throttled; told != nil {
		told(Throttled{Sent: sent, Accepted: accepted, Delay: delay})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.throttle.refused(time.Now(), sent, accepted, delay, refusal)
	back = slices.DeleteFunc(back, func(s *submission) bool {
		late := b.throttle.until.After(s.giveUp)
		if late {
			s.end(nil, unknownIf(s.unsure, refusal))
		}
		return late
	})
	if accepted > 0 {
		b.pending = slices.Concat(back, b.pending)
	} else {
		b.pending = slices.Concat(b.pending, back)
	}
}

// hold waits until the throttle allows a call that is not in a batch. The error is why it would be too
// late then, or that of ctx.
func (b *batcher) hold(ctx context.Context, giveUp time.Time) error {
	for {
		now := time.Now()
		b.mu.Lock()
		wait, refusal := b.throttle.wait(now), b.throttle.refusal
		b.mu.Unlock()
		switch {
		case wait == 0:
			return nil
		case now.Add(wait).After(giveUp):
			return refusal
		}
		if err := backoff.Sleep(ctx, wait+rand.N(wait/2+1)); err != nil {
			return err
		}
	}
}

// heard has submissions wait after a call that is not in a batch was refused for overload.
func (b *batcher) heard(delay time.Duration, refusal error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.throttle.heard(time.Now(), delay, refusal)
}

// submitBatch sends a batch and ends each of its submissions, or puts it back. The
// halves of a batch that is too large for the server are sent on their own.
func (c *Client) submitBatch(batch []*submission) {
	var tries int
	ctx := context.WithValue(c.closing, triesKey{}, &tries)
	expiry, err := c.expiry(c.closing)
	if err != nil {
		endAll(batch, err)
		return
	}
	if batch = c.remembered(batch); len(batch) == 0 {
		return
	}
	req := &rotav1.BatchSubmitActionsRequest{Requests: make([]*rotav1.SubmitActionsRequest, len(batch))}
	for i, s := range batch {
		s.expires(expiry)
		req.Requests[i] = s.req
	}
	resp, err := c.Actions.BatchSubmitActions(ctx, req)
	if err == nil && len(resp.Results) != len(batch) {
		err = fmt.Errorf("server answered %d of %d submissions", len(resp.Results), len(batch))
	}
	if half := len(batch) / 2; half > 0 && codec.TooLarge(err) {
		c.submitBatch(batch[:half])
		c.submitBatch(batch[half:])
		return
	}
	if delay, refused := codec.Overloaded(err); refused {
		for _, s := range batch {
			s.unsure = s.unsure || tries > 1
		}
		c.batcher.refused(actionsOf(batch), 0, delay, err, batch)
		return
	}
	if err != nil {
		for _, s := range batch {
			s.end(nil, unknownIf(s.unsure || c.closing.Err() != nil, err))
		}
		return
	}
	c.settleAll(batch, resp.Results, tries > 1)
}

// settleAll settles each submission of a batch by its own result. Unsure says that an earlier
// try of the batch may have been accepted.
func (c *Client) settleAll(batch []*submission, results []*rotav1.SubmitActionsResult, unsure bool) {
	var back []*submission
	var longest time.Duration
	var refusal error
	sent := actionsOf(batch)
	for i, s := range batch {
		s.unsure = s.unsure || unsure
		if detail := results[i].GetError(); detail != nil {
			err := detailError(detail)
			if delay, refused := codec.Overloaded(err); refused {
				back, refusal, longest = append(back, s), err, max(longest, delay)
				continue
			}
		}
		c.settle(s, results[i])
	}
	if len(back) == 0 {
		c.batcher.accepted()
		return
	}
	c.batcher.refused(sent, sent-actionsOf(back), longest, refusal, back)
}

func actionsOf(batch []*submission) (n int) {
	for _, s := range batch {
		n += len(s.req.Actions)
	}
	return n
}

// expires sets until when a submission is remembered, if that is not known yet. One
// that may have been accepted without an expiry is left without: were it forgotten
// since, an expiry would have it accepted again.
func (s *submission) expires(at *timestamppb.Timestamp) {
	if s.req.ExpireTime == nil && (s.sent.IsZero() || !s.unsure) {
		s.req.ExpireTime = at
	}
	if s.req.ExpireTime == nil && s.sent.IsZero() {
		s.sent = time.Now()
	}
}

// remembered ends those submissions of a batch that servers may have accepted and
// forgotten again, and returns the others.
func (c *Client) remembered(batch []*submission) []*submission {
	return slices.DeleteFunc(batch, func(s *submission) bool {
		gone := s.unsure && s.req.ExpireTime == nil && time.Since(s.sent) >= c.clock.remembered
		if gone {
			s.end(nil, ErrUnknownOutcome)
		}
		return gone
	})
}

func endAll(batch []*submission, err error) {
	for _, s := range batch {
		s.end(nil, unknownIf(s.unsure, err))
	}
}

// settle ends a submission by its result, or puts it back to be sent again.
func (c *Client) settle(s *submission, result *rotav1.SubmitActionsResult) {
	detail := result.GetError()
	if detail == nil {
		s.end(result.GetResponse(), nil)
		return
	}
	err := detailError(detail)
	delay := detail.RetryDelay.AsDuration()
	switch {
	case detail.Reason == requestExpired && !s.unsure && s.req.ExpireTime != nil:
		// No try can have been accepted, so our clock was behind, which we had
		// perhaps from a server that was behind itself: read it again.
		c.clock.forget()
		s.req.ExpireTime = nil
		delay = max(delay, clockRetry)
	case detail.Reason == requestExpired && s.unsure:
		s.end(nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
		return
	case detail.RetryDelay == nil:
		s.end(nil, err)
		return
	case detail.Reason == "UNKNOWN_OUTCOME":
		s.unsure = true
	}
	if time.Now().Add(delay).After(s.giveUp) {
		s.end(nil, unknownIf(s.unsure, err))
		return
	}
	c.wg.Go(func() {
		pause := pacer{}
		_ = pause.wait(c.closing, delay) // a closed client ends what is added
		c.batcher.add(s)
	})
}

// detailError makes an error of a batch into what a single call returns.
func detailError(d *rotav1.ErrorDetail) error {
	err := connect.NewError(connect.Code(d.Code), errors.New(d.Message))
	if detail, encodeErr := connect.NewErrorDetail(d); encodeErr == nil {
		err.AddDetail(detail)
	}
	return err
}
