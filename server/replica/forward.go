package replica

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	logv1 "rota/api/gen/log/v1"
	peerv1 "rota/api/gen/peer/v1"
	"rota/api/gen/peer/v1/peerv1connect"
	"rota/internal/failpoint"
)

// forwardsInFlight is how many calls with proposals are on their way to the
// leader; what arrives meanwhile becomes the next call.
const forwardsInFlight = 4

// forwardLoop sends what was proposed on a follower to the leader.
func (r *Replica) forwardLoop() {
	slots := make(chan struct{}, forwardsInFlight)
	for {
		select {
		case slots <- struct{}{}:
		case <-r.closed:
			return
		}
		b := r.remote.next(r.closed)
		if b == nil {
			return
		}
		r.goFunc(func() {
			defer func() { <-slots }()
			results, err := r.forward(b)
			r.remote.deliver(b, results, err)
		})
	}
}

func (r *Replica) forward(b batch) ([]*logv1.Result, error) {
	client, address, err := r.leaderClient()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.forwardContext(address, answerGrace)
	defer cancel()
	cmds := b.Commands()
	resp, err := client.Propose(ctx, &peerv1.ProposeRequest{Commands: cmds})
	if err != nil {
		return nil, forwardError(err)
	}
	failpoint.Hit(failpoint.ForwardAnswered)
	if len(resp.Results) != len(cmds) {
		return nil, unknown(fmt.Errorf("leader sent %d results for %d commands", len(resp.Results), len(cmds)))
	}
	return resp.Results, nil
}

func (r *Replica) leaderClient() (client peerv1connect.PeerServiceClient, address string, err error) {
	_, address = r.Leader()
	if address == "" || address == r.cfg.Address || r.cfg.PeerClient == nil {
		return nil, "", ErrNoLeader
	}
	return r.cfg.PeerClient(address), address, nil
}

// answerGrace is for the answer to a proposal that is on its way when its leader
// is replaced in good order: without it, the outcome would be unknown.
const answerGrace = 250 * time.Millisecond

// errReplaced: whoever was asked no longer leads, and may never answer.
var errReplaced = errors.New("another server has become the leader")

// forwardContext ends with the replica, in time, and after a grace when another
// server leads than the one at the address. That one may be hanging, with its
// connections open, and whatever waits for it holds up what could be done.
func (r *Replica) forwardContext(address string, grace time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.ForwardTimeout)
	ctx, replaced := context.WithCancelCause(ctx)
	go func() {
		if r.awaitReplaced(ctx, address) {
			select {
			case <-ctx.Done():
			case <-time.After(grace):
			}
		}
		replaced(errReplaced)
	}()
	return ctx, cancel
}

// awaitReplaced returns true when another server leads than the one at the
// address, and false when that does not matter any more.
func (r *Replica) awaitReplaced(ctx context.Context, address string) bool {
	for {
		changed := r.changed.wait()
		if _, now := r.Leader(); now != "" && now != address {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-r.closed:
			return false
		}
	}
}

// AskLeader calls ask with the address of whoever leads, empty if it is this
// server, and again for its successor should it be replaced before it has
// answered, or answer ErrNoLeader. It is for what may be asked twice.
// ErrNoLeader: try again.
func (r *Replica) AskLeader(ctx context.Context, ask func(ctx context.Context, address string) error) error {
	return r.withLeader(ctx, func(lead *leadership, address string) error {
		if lead != nil {
			return ask(ctx, "")
		}
		try, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			if r.awaitReplaced(try, address) {
				cancel(errReplaced)
			}
		}()
		err := ask(try, address)
		if err != nil && errors.Is(context.Cause(try), errReplaced) {
			return noLeader(err)
		}
		return err
	})
}

// retryHeader carries ErrOverloaded.RetryAfter between servers, in nanoseconds.
const retryHeader = "Rota-Retry-Ns"

// forwardError says what a failed call to the leader means. Only what the leader
// itself said, and a refused connection, prove that nothing was proposed.
func forwardError(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return noLeader(err)
	}
	var ce *connect.Error
	if !errors.As(err, &ce) || !connect.IsWireError(err) {
		return unknown(err)
	}
	switch ce.Code() {
	case connect.CodeFailedPrecondition:
		return noLeader(err)
	case connect.CodeResourceExhausted:
		ns, err := strconv.ParseInt(ce.Meta().Get(retryHeader), 10, 64)
		if err != nil {
			return unknown(ce)
		}
		return ErrOverloaded{RetryAfter: time.Duration(ns)}
	case connect.CodeInvalidArgument:
		return ErrTooLarge
	}
	return unknown(err)
}

// ServePropose answers PeerService.Propose on the leader, for another server.
func (r *Replica) ServePropose(ctx context.Context, req *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	results, err := r.ProposeLocal(ctx, req.Commands...)
	if err != nil {
		return nil, peerError(err)
	}
	return &peerv1.ProposeResponse{Results: results}, nil
}

// ServeReadIndex answers PeerService.ReadIndex on the leader.
func (r *Replica) ServeReadIndex(ctx context.Context, _ *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	lead, err := r.leading(ctx)
	if err != nil {
		return nil, peerError(err)
	}
	last := r.raft.LastIndex()
	index, err := r.readLead(ctx, lead)
	if err != nil {
		return nil, peerError(err)
	}
	return &peerv1.ReadIndexResponse{Index: index, LastIndex: last, Term: lead.term}, nil
}

// peerError is the inverse of forwardError.
func peerError(err error) error {
	var overloaded ErrOverloaded
	switch {
	case errors.As(err, &overloaded):
		ce := connect.NewError(connect.CodeResourceExhausted, err)
		ce.Meta().Set(retryHeader, strconv.FormatInt(int64(overloaded.RetryAfter), 10))
		return ce
	case errors.Is(err, ErrTooLarge):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, ErrNotLeader), errors.Is(err, ErrNoLeader), errors.Is(err, ErrShutdown):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	}
	return connect.NewError(connect.CodeAborted, err)
}
