package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
)

// outputGrace is how long output may be silent after the action has ended, until no more is waited for.
const outputGrace = 5 * time.Second

// noTimes is the reason of an error: nobody noted when output was written.
const noTimes = "OUTPUT_HAS_NO_TIMES"

// errCut: a stream ended before the action did, because its server shuts down.
var errCut = connect.NewError(connect.CodeUnavailable, errors.New("the stream ended before the action did"))

// Update is called with every state and every piece of output of an action
// that Run or Follow follows, one call at a time. Output of an attempt comes in
// order; where bytes were dropped, the offset jumps.
type Update func(*rotav1.RunActionResponse)

// Run submits an action, follows it to its end and returns it. The last update
// is the ended action. A server may be lost meanwhile; the action is still run
// as often as its loss policy says and no more. While submissions of this client wait after a
// refusal, it waits too.
func (c *Client) Run(ctx context.Context, spec *rotav1.ActionSpec, update Update) (*rotav1.Action, error) {
	f := newFollower(c, update)
	req := &rotav1.RunActionRequest{Namespace: c.config.Namespace, Action: inTrace(ctx, []*rotav1.ActionSpec{spec})[0]}
	ended := false
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() (err error) {
		ended, err = f.start(ctx, req)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("run action: %w", err)
	case ended:
		return f.action, nil
	}
	return f.follow(ctx, f.action.Id)
}

// start submits an action and follows the stream of the answer. It reports whether the stream lasted until
// the action ended. If it did not, the action has an ID all the same and can be followed.
func (f *follower) start(ctx context.Context, req *rotav1.RunActionRequest) (ended bool, err error) {
	c := f.c
	p, began, unsure := c.persist(), time.Now(), false
	for {
		if err := c.batcher.hold(ctx, p.giveUp); err != nil {
			return false, unknownIf(unsure, err)
		}
		try, to := withAttempt(ctx)
		err := f.stream(try, req)
		if f.action != nil {
			return err == nil && Final(f.action.State), nil
		}
		if delay, refused := codec.Overloaded(err); refused {
			c.batcher.heard(delay, err)
		}
		unsure = unsure || mayBeDone(connect.Spec{}, err)
		if unsure && req.ExpireTime == nil && time.Since(began) >= c.clock.remembered {
			return false, unknownIf(true, p.telling(to.addr, err))
		}
		if err := p.again(ctx, to.addr, err); err != nil {
			return false, unknownIf(unsure, err)
		}
	}
}

// Follow follows an action that was submitted before to its end, from the first
// byte of output that is still kept.
func (c *Client) Follow(ctx context.Context, id uint64, update Update) (*rotav1.Action, error) {
	return newFollower(c, update).follow(ctx, id)
}

// From says which output is followed. The zero value is all that is still kept.
type From struct {
	// Attempt is the one that the offsets are of: its output before them is left out.
	Attempt        uint32
	Stdout, Stderr uint64
	// Since leaves out what was written before. Times has chunks say when they were written.
	// Both end with the reason OUTPUT_HAS_NO_TIMES if that is not known.
	Since time.Time
	Times bool
}

// FollowFrom is Follow without some of the output.
func (c *Client) FollowFrom(ctx context.Context, id uint64, from From, update Update) (*rotav1.Action, error) {
	f := newFollower(c, update)
	f.from = from
	f.reached[place{from.Attempt, rotav1.OutputStream_OUTPUT_STREAM_STDOUT}] = from.Stdout
	f.reached[place{from.Attempt, rotav1.OutputStream_OUTPUT_STREAM_STDERR}] = from.Stderr
	return f.follow(ctx, id)
}

// follower passes on states and output, each once, whatever streams they come
// from.
type follower struct {
	c      *Client
	update Update
	from   From

	mu      sync.Mutex
	action  *rotav1.Action // newest that was passed on
	reached map[place]uint64
	// news has something in it when output was passed on.
	news chan struct{}
}

// place is one stream of output of one attempt.
type place struct {
	attempt uint32
	stream  rotav1.OutputStream
}

func newFollower(c *Client, update Update) *follower {
	return &follower{c: c, update: update, reached: map[place]uint64{}, news: make(chan struct{}, 1)}
}

// stream follows a RunAction stream to its end.
func (f *follower) stream(ctx context.Context, req *rotav1.RunActionRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.c.Actions.RunAction(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		switch u := stream.Msg().Update.(type) {
		case *rotav1.RunActionResponse_Action:
			f.passAction(u.Action)
		case *rotav1.RunActionResponse_Output:
			f.passOutput(u.Output)
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if f.action == nil || !Final(f.action.State) {
		return errCut
	}
	return nil
}

// passAction passes an action on if it is newer than what was passed before.
func (f *follower) passAction(a *rotav1.Action) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.action != nil && a.Revision <= f.action.Revision {
		return
	}
	f.action = a
	f.update(&rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Action{Action: a}})
}

// passOutput passes on what is new of a piece of output.
func (f *follower) passOutput(chunk *rotav1.OutputChunk) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := place{chunk.Attempt, chunk.Stream}
	end := chunk.Offset + uint64(len(chunk.Data))
	if end <= f.reached[p] {
		return
	}
	if known := f.reached[p]; known > chunk.Offset {
		chunk.Data = chunk.Data[known-chunk.Offset:]
		chunk.Offset = known
	}
	f.reached[p] = end
	f.update(&rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Output{Output: chunk}})
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// follow follows by watching the action and reading its output.
func (f *follower) follow(ctx context.Context, id uint64) (*rotav1.Action, error) {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	a, err := f.toEnd(ctx, id, refuse)
	if cause := context.Cause(ctx); Detail(cause).GetReason() == noTimes {
		return nil, fmt.Errorf("follow action %d: %w", id, cause)
	}
	return a, err
}

// toEnd follows until the action has ended. What cannot be read as it was asked for is refused.
func (f *follower) toEnd(ctx context.Context, id uint64, refuse func(error)) (*rotav1.Action, error) {
	reading, stop := context.WithCancel(ctx)
	var outputs sync.WaitGroup
	defer func() { // nothing is told any more after the return, unless who is told takes longer than that
		stop()
		waitWhileNews(&outputs, f.news, outputGrace)
	}()
	started := map[uint32]bool{}
	req := &rotav1.WatchActionsRequest{Namespace: "*", ActionId: id, AfterRevision: proto.Uint64(0)}
	for {
		got, err := f.c.Actions.GetAction(ctx, &rotav1.GetActionRequest{Id: id})
		if err != nil {
			return nil, fmt.Errorf("follow action %d: %w", id, err)
		}
		a := got.Action
		if a.Attempt > 0 && !started[a.Attempt] {
			started[a.Attempt] = true
			outputs.Go(func() {
				if err := f.read(reading, id, a.Attempt); err != nil {
					refuse(err)
				}
			})
		}
		if Final(a.State) {
			waitWhileNews(&outputs, f.news, outputGrace)
			stop()
			outputs.Wait()
			f.passAction(a)
			return a, nil
		}
		f.passAction(a)
		req.AfterRevision = proto.Uint64(got.Revision)
		if err := f.next(ctx, req); err != nil {
			return nil, fmt.Errorf("follow action %d: %w", id, err)
		}
	}
}

// next returns when there may be news: after an event, or when events are lost.
func (f *follower) next(ctx context.Context, req *rotav1.WatchActionsRequest) error {
	for _, err := range f.c.Watch(ctx, req) {
		if err != nil && ctx.Err() == nil && connect.CodeOf(err) == connect.CodeOutOfRange {
			return nil
		}
		return err
	}
	return nil
}

// read passes on the output of one attempt until its end, or until it is gone. Its error ends the
// following: the output has no times.
func (f *follower) read(ctx context.Context, id uint64, attempt uint32) error {
	var pause pacer
	for ctx.Err() == nil {
		f.mu.Lock()
		req := &rotav1.ReadActionOutputRequest{
			ActionId: id, Attempt: attempt, Follow: true,
			StdoutOffset: f.reached[place{attempt, rotav1.OutputStream_OUTPUT_STREAM_STDOUT}],
			StderrOffset: f.reached[place{attempt, rotav1.OutputStream_OUTPUT_STREAM_STDERR}],
		}
		f.mu.Unlock()
		req.Times = f.from.Times
		if !f.from.Since.IsZero() {
			req.Since = timestamppb.New(f.from.Since)
		}
		err := f.readOnce(ctx, req)
		if err == nil {
			return nil
		}
		if Detail(err).GetReason() == noTimes {
			return err
		}
		again, delay := transient(err)
		if !again || pause.wait(ctx, delay) != nil {
			return nil
		}
	}
	return nil
}

func (f *follower) readOnce(ctx context.Context, req *rotav1.ReadActionOutputRequest) error {
	try, to := withAttempt(ctx)
	stream, err := f.c.Actions.ReadActionOutput(try, req)
	if err != nil {
		f.c.servers.failed(to.addr)
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		f.passOutput(stream.Msg().Chunk)
	}
	err = stream.Err()
	if err != nil && Detail(err) == nil {
		f.c.servers.failed(to.addr)
	}
	return err
}

// waitWhileNews waits for a group, but not for longer than d without news.
func waitWhileNews(g *sync.WaitGroup, news <-chan struct{}, d time.Duration) {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-news:
			timer.Reset(d)
		case <-timer.C:
			return
		}
	}
}
