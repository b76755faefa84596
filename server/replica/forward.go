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
		batch := r.remote.next(r.closed, r.cfg.EntryBytes, r.cfg.EntryCommands)
		if batch == nil {
			return
		}
		r.goFunc(func() {
			defer func() { <-slots }()
			results, err := r.forward(batch)
			r.remote.deliver(batch, results, err)
		})
	}
}

func (r *Replica) forward(batch []*proposal) ([]*logv1.Result, error) {
	client, err := r.leaderClient()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.forwardContext()
	defer cancel()
	cmds := commands(batch)
	resp, err := client.Propose(ctx, &peerv1.ProposeRequest{Commands: cmds})
	if err != nil {
		return nil, forwardError(err)
	}
	if len(resp.Results) != len(cmds) {
		return nil, unknown(fmt.Errorf("leader sent %d results for %d commands", len(resp.Results), len(cmds)))
	}
	return resp.Results, nil
}

func (r *Replica) leaderClient() (peerv1connect.PeerServiceClient, error) {
	_, address := r.Leader()
	if address == "" || address == r.cfg.Address || r.cfg.PeerClient == nil {
		return nil, ErrNoLeader
	}
	return r.cfg.PeerClient(address), nil
}

// forwardContext ends with the replica, and in time.
func (r *Replica) forwardContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.ForwardTimeout)
	stop := make(chan struct{})
	go func() {
		select {
		case <-r.closed:
			cancel()
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); cancel() }
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
	index, err := r.ReadIndexLocal(ctx)
	if err != nil {
		return nil, peerError(err)
	}
	return &peerv1.ReadIndexResponse{Index: index}, nil
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
