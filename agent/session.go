package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"

	"rota/agent/runtime"
	"rota/internal/failpoint"
)

const (
	registerTimeout = 5 * time.Second
	// leaseMin keeps a nonsensical answer of a server from becoming a busy loop.
	leaseMin = 100 * time.Millisecond
	// silenceMax is how long nothing may arrive on a stream. Servers send a
	// desired state every two seconds even if it is the same.
	silenceMax = 5 * time.Second
)

var (
	// errSilent means that a server kept the stream open and sent nothing on it.
	errSilent = errors.New("nothing arrived on the stream")
	// errMoved means that another server is used now, such as a new leader.
	errMoved = errors.New("another server is used now")
)

// moveMin is the least time between two streams, should servers differ on who leads.
const moveMin = 20 * time.Millisecond

// sessions registers the node and works for as long as the lease is kept, and
// then does it again, until the context ends or an error says that it is
// pointless.
func (a *agent) sessions(ctx context.Context) error {
	incarnation := a.journal.Incarnation()
	for {
		if incarnation == 0 {
			// The cluster will believe that nothing runs here, so nothing may.
			if err := a.killAll(ctx, 0); err != nil {
				return err
			}
		}
		resp, err := a.register(ctx, incarnation)
		if err != nil {
			return err
		}
		if err := a.enter(ctx, resp); err != nil {
			return err
		}
		incarnation = resp.GetIncarnation()
		err = a.session(ctx, resp)
		a.lease.End()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.log.Error("killing everything that runs here", "reason", err, "incarnation", incarnation)
		if err := a.killAll(ctx, 0); err != nil {
			return err
		}
	}
}

// killAll kills what is not of the incarnation keep (0: everything), and
// returns when it is dead.
func (a *agent) killAll(ctx context.Context, keep uint64) error {
	a.table.evict(keep, runtime.ReasonNodeLost)
	patience := time.NewTicker(a.lease.Patience())
	defer patience.Stop()
	for {
		changed := a.table.wait()
		if a.table.dead(keep) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-patience.C:
			a.killFrozenSupervisor(ctx)
		}
	}
}

// register returns an answer of the cluster, or an error if none that helps
// will ever come.
func (a *agent) register(ctx context.Context, incarnation uint64) (*rotav1.RegisterNodeResponse, error) {
	req := a.describe()
	req.Incarnation, req.JournalId = incarnation, a.journal.ID()
	pause := newRounds(50*time.Millisecond, 2*time.Second)
	for said := ""; ; {
		resp, err := call(ctx, a.servers, registerTimeout,
			func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.RegisterNodeResponse, error) {
				return c.RegisterNode(ctx, req)
			})
		if err == nil {
			if err = checkRegistration(resp); err == nil {
				return resp, nil
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if code := connect.CodeOf(err); code == connect.CodeInvalidArgument || code == connect.CodePermissionDenied {
			return nil, fmt.Errorf("register node %s: %w", a.cfg.Name, err)
		}
		if said != err.Error() { // once, not at every try
			said = err.Error()
			a.log.Warn("not registered yet; trying on", "error", err)
		}
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return nil, ctx.Err()
		}
	}
}

func checkRegistration(resp *rotav1.RegisterNodeResponse) error {
	lease, margin := resp.GetLeaseDuration().AsDuration(), resp.GetLeaseMargin().AsDuration()
	if resp.GetIncarnation() == 0 || lease < leaseMin || margin < 0 || margin >= lease {
		return fmt.Errorf("the server answered nonsense: incarnation %d, lease %v, margin %v",
			resp.GetIncarnation(), lease, margin)
	}
	return nil
}

// enter begins the incarnation that the cluster answered: everything older is
// dead and its journal forgotten before anything of it is started.
func (a *agent) enter(ctx context.Context, resp *rotav1.RegisterNodeResponse) error {
	failpoint.Hit(failpoint.NodeRegistered)
	incarnation := resp.GetIncarnation()
	if err := a.killAll(ctx, incarnation); err != nil {
		return err
	}
	if a.journal.Incarnation() != incarnation {
		if err := a.journal.SetIncarnation(incarnation); err != nil {
			return err
		}
		failpoint.Hit(failpoint.IncarnationJournaled)
	}
	a.lease.Begin(resp.GetLeaseDuration().AsDuration(), resp.GetLeaseMargin().AsDuration())
	a.table.enter(incarnation, resp.GetIndex())
	a.log.Info("registered", "cluster", resp.GetClusterId(), "incarnation", incarnation, "index", resp.GetIndex(),
		"lease", resp.GetLeaseDuration().AsDuration(), "cores", a.inv.Cores())
	return nil
}

// session renews the lease and follows the desired state until either says
// that the node is no longer the cluster's.
func (a *agent) session(ctx context.Context, resp *rotav1.RegisterNodeResponse) error {
	g := newGroup(ctx)
	g.Go(func(ctx context.Context) error { return watchLease(ctx, a.lease) })
	g.Go((&renewer{
		lease: a.lease, servers: a.servers,
		req:     &rotav1.RenewLeaseRequest{Name: a.cfg.Name, Incarnation: resp.GetIncarnation()},
		renewed: func() { a.table.change(func() {}) },
	}).run)
	g.Go(func(ctx context.Context) error { return a.follow(ctx, resp.GetIncarnation()) })
	g.Go(func(ctx context.Context) error { return a.reportDisk(ctx, resp.GetIncarnation()) })
	return g.Wait()
}

// follow keeps one stream of desired states open: on the leader, or else on any server.
func (a *agent) follow(ctx context.Context, incarnation uint64) error {
	pause := newRounds(20*time.Millisecond, time.Second)
	for {
		srv := a.servers.current()
		heard, err := a.stream(ctx, srv, incarnation)
		if ctx.Err() != nil || errors.Is(err, errFenced) {
			return err
		}
		if heard {
			pause.reset()
		}
		if errors.Is(err, errMoved) {
			if backoff.Sleep(ctx, moveMin) != nil {
				return ctx.Err()
			}
			continue
		}
		a.log.Info("stream of desired state ended; trying the next server", "server", srv.addr, "error", err)
		a.servers.failed(srv)
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return ctx.Err()
		}
	}
}

// stream follows one server for as long as it can be heard.
func (a *agent) stream(ctx context.Context, srv *server, incarnation uint64) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silenceMax, func() { cancel(errSilent) })
	defer watchdog.Stop()
	go func() {
		a.servers.leaves(ctx, srv)
		cancel(errMoved)
	}()
	stream, err := srv.client.WatchNode(ctx, &rotav1.WatchNodeRequest{
		Name: a.cfg.Name, Incarnation: incarnation, MinIndex: a.table.seen(), Changes: true,
	})
	if err != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	defer stream.Close()
	for stream.Receive() {
		watchdog.Reset(silenceMax)
		heard = true
		if err := a.table.desire(incarnation, stream.Msg(), a.specs); err != nil {
			return heard, fmt.Errorf("desired state: %w", err)
		}
	}
	if err := stream.Err(); err != nil {
		return heard, errors.Join(err, context.Cause(ctx))
	}
	return heard, errors.New("the server ended the stream")
}
