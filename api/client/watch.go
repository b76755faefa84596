package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

// Watch returns events in the order of their revisions, without gaps or
// repetitions, also when servers are lost meanwhile. It ends with an error: that
// of ctx, OUT_OF_RANGE when the revision to go on from is no longer kept, or the
// last one after RetryFor without hearing from any server.
func (c *Client) Watch(ctx context.Context, req *rotav1.WatchActionsRequest) iter.Seq2[*rotav1.ActionEvent, error] {
	return func(yield func(*rotav1.ActionEvent, error) bool) {
		w := &watch{c: c, req: proto.CloneOf(req), p: c.persist()}
		if err := w.run(ctx, yield); err != nil && !errors.Is(err, errStopped) {
			yield(nil, fmt.Errorf("watch actions: %w", err))
		}
	}
}

// errStopped: the caller wants no more events.
var errStopped = errors.New("stopped")

type watch struct {
	c   *Client
	req *rotav1.WatchActionsRequest
	p   *persistence // since the last message
}

func (w *watch) run(ctx context.Context, yield func(*rotav1.ActionEvent, error) bool) error {
	return follow(ctx, &w.p, func(ctx context.Context) error { return w.stream(ctx, yield) })
}

// follow begins a stream again wherever it ends, until it says errStopped or p, which each stream
// may replace, gives up.
func follow(ctx context.Context, p **persistence, stream func(context.Context) error) error {
	for {
		try, to := withAttempt(ctx)
		err := stream(try)
		if errors.Is(err, errStopped) {
			return err
		}
		if err == nil { // the server ended the stream, to shut down
			err = errCut
		}
		if err := (*p).again(ctx, to.addr, err); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return err
		}
	}
}

// stream follows one stream to its end.
func (w *watch) stream(ctx context.Context, yield func(*rotav1.ActionEvent, error) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.c.Actions.WatchActions(ctx, w.req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		w.p = w.c.persist() // counted from here on
		msg := stream.Msg()
		for _, e := range msg.Events {
			if !yield(e, nil) {
				return errStopped
			}
		}
		w.req.AfterRevision = proto.Uint64(msg.Revision)
	}
	return stream.Err()
}
