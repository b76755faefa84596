package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// stalePause is how long no server is asked for routes after all of them were refused. They learn
// nothing from being asked.
const stalePause = 2 * time.Second

// WatchRoutes returns what servers say about routes: first all of it, then what changes. When
// a server is lost, it asks another one, whose first message is a reset again. It
// ends with an error: that of ctx, or the last one after RetryFor without hearing from any server.
// A reset may be stale: see WatchRoutesUnless.
func (c *Client) WatchRoutes(ctx context.Context, req *rotav1.WatchRoutesRequest) iter.Seq2[*rotav1.WatchRoutesResponse, error] {
	return c.WatchRoutesUnless(ctx, req, func(*rotav1.WatchRoutesResponse) bool { return false })
}

// WatchRoutesUnless is WatchRoutes for who may know more than a server that is asked. Where refuse
// returns true for the first message of a server, such as for one that is stale, that message is
// left out and another server is asked. While all of them are refused, nothing was heard from any.
func (c *Client) WatchRoutesUnless(ctx context.Context, req *rotav1.WatchRoutesRequest, refuse func(*rotav1.WatchRoutesResponse) bool) iter.Seq2[*rotav1.WatchRoutesResponse, error] {
	return func(yield func(*rotav1.WatchRoutesResponse, error) bool) {
		w := &routeWatch{c: c, req: req, refuse: refuse, p: c.persist()}
		if err := w.run(ctx, yield); err != nil && !errors.Is(err, errStopped) {
			yield(nil, fmt.Errorf("watch routes: %w", err))
		}
	}
}

type routeWatch struct {
	c   *Client
	req *rotav1.WatchRoutesRequest
	// refuse says of which server not to hear; refused counts these in a row.
	refuse  func(*rotav1.WatchRoutesResponse) bool
	refused int
	p       *persistence // since the last message
}

func (w *routeWatch) run(ctx context.Context, yield func(*rotav1.WatchRoutesResponse, error) bool) error {
	return follow(ctx, &w.p, func(ctx context.Context) error { return w.stream(ctx, yield) })
}

// stream follows one stream to its end.
func (w *routeWatch) stream(ctx context.Context, yield func(*rotav1.WatchRoutesResponse, error) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.c.Workers.WatchRoutes(ctx, w.req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for first := true; stream.Receive(); first = false {
		if first && w.refuse(stream.Msg()) {
			return w.refusal()
		}
		w.refused = 0
		w.p = w.c.persist() // counted from here on
		msg := proto.CloneOf(stream.Msg())
		msg.Reset_ = msg.Reset_ || first
		if !yield(msg, nil) {
			return errStopped
		}
	}
	return stream.Err()
}

// refusal is how a stream ends that was refused. The next server is asked soon, unless each was.
func (w *routeWatch) refusal() error {
	d := &rotav1.ErrorDetail{
		Code: uint32(connect.CodeUnavailable), Reason: "STALE", RetryDelay: new(durationpb.Duration),
		Message: "the server has lost sight of the leader, so what it knows of routes may be old",
	}
	if w.refused++; w.refused >= len(w.c.config.Addrs) {
		d.RetryDelay = durationpb.New(stalePause)
	}
	return detailError(d)
}

// ReportGenerations sends a report. A request without an ID is given one, in place: the same
// request may then be sent again after an error, and counts once all the same.
func (c *Client) ReportGenerations(ctx context.Context, req *rotav1.ReportGenerationsRequest) error {
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() error {
		_, err := c.Workers.ReportGenerations(ctx, req)
		return err
	})
	if err != nil {
		return fmt.Errorf("report generations: %w", err)
	}
	return nil
}

// ReportRewards sends a report about reward functions, as ReportGenerations does.
func (c *Client) ReportRewards(ctx context.Context, req *rotav1.ReportRewardsRequest) error {
	err := c.identified(ctx, &req.RequestId, &req.ExpireTime, func() error {
		_, err := c.Rewards.ReportRewards(ctx, req)
		return err
	})
	if err != nil {
		return fmt.Errorf("report rewards: %w", err)
	}
	return nil
}
