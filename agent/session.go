package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"rota/agent/plan"
	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
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
	// errGap: what came are changes of another state than the newest that was seen.
	errGap = errors.New("a message of the stream is missing: asking for the whole desired state")
)

// moveMin is the least time between two streams, should servers differ on who leads.
const moveMin = 20 * time.Millisecond

// register returns an answer of the cluster, or an error if none that helps
// will ever come.
func (a *agent) register(ctx context.Context, incarnation uint64) (plan.Terms, error) {
	req := a.describe()
	req.Incarnation, req.JournalId = incarnation, a.journal.ID()
	pause := newRounds(50*time.Millisecond, 2*time.Second)
	for said := ""; ; {
		resp, err := call(ctx, a.servers, registerTimeout,
			func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.RegisterNodeResponse, error) {
				return c.RegisterNode(ctx, req)
			})
		var terms plan.Terms
		if err == nil {
			if terms, err = checkTerms(resp); err == nil {
				a.joined(terms.Cluster)
				return terms, nil
			}
		}
		if ctx.Err() != nil {
			return terms, ctx.Err()
		}
		if code := connect.CodeOf(err); code == connect.CodeInvalidArgument || code == connect.CodePermissionDenied {
			return terms, fmt.Errorf("register node %s: %w", a.cfg.Name, err)
		}
		if said != err.Error() { // once, not at every try
			said = err.Error()
			a.log.Warn("not registered yet; trying on", "error", err)
		}
		if backoff.Sleep(ctx, pause.next(a.servers.count())) != nil {
			return terms, ctx.Err()
		}
	}
}

// joined notes which cluster the node is in, and says so when it is another one than before.
// Whatever ran of that one is dead by the time that anything of the new one starts: its
// incarnation is another.
func (a *agent) joined(cluster string) {
	if old := a.cluster; old != "" && old != cluster {
		a.log.Warn("this node is in another cluster now: what ran of the old one is killed and not reported", "old", old, "new", cluster)
	}
	a.cluster = cluster
}

// checkTerms returns what a registration grants.
func checkTerms(resp *rotav1.RegisterNodeResponse) (plan.Terms, error) {
	lease, margin := resp.GetLeaseDuration().AsDuration(), resp.GetLeaseMargin().AsDuration()
	if resp.GetIncarnation() == 0 || lease < leaseMin || margin < 0 || margin >= lease {
		return plan.Terms{}, fmt.Errorf("the server answered nonsense: incarnation %d, lease %v, margin %v",
			resp.GetIncarnation(), lease, margin)
	}
	return plan.Terms{
		Cluster: resp.GetClusterId(), Incarnation: resp.GetIncarnation(), Index: resp.GetIndex(), LeaseNS: int64(lease), MarginNS: int64(margin),
	}, nil
}

// follow keeps one stream of desired states open: on the leader, or else on any server.
func (a *agent) follow(ctx context.Context, incarnation uint64) {
	pause := newRounds(20*time.Millisecond, time.Second)
	for {
		srv := a.servers.current()
		heard, err := a.stream(ctx, srv, incarnation)
		if ctx.Err() != nil {
			return
		}
		if heard {
			pause.reset()
		}
		wait := moveMin
		if !errors.Is(err, errMoved) {
			a.log.Info("stream of desired state ended; trying the next server", "server", srv.addr, "error", err)
			a.servers.failed(srv)
			wait = pause.next(a.servers.count())
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
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
		Name: a.cfg.Name, Incarnation: incarnation, MinIndex: a.seenIndex(), Changes: true,
	})
	if err != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	defer stream.Close()
	for stream.Receive() {
		watchdog.Reset(silenceMax)
		heard = true
		if a.desire(incarnation, stream.Msg()) {
			return heard, errGap
		}
	}
	if err := stream.Err(); err != nil {
		return heard, errors.Join(err, context.Cause(ctx))
	}
	return heard, errors.New("the server ended the stream")
}

func (a *agent) seenIndex() (index uint64) {
	a.driver.read(func(p *plan.Plan) { index = p.SeenIndex() })
	return index
}

// desire tells the plan of a desired state. The work of attempts that are new is made
// of the assignments.
func (a *agent) desire(incarnation uint64, m *rotav1.WatchNodeResponse) (gap bool) {
	d := plan.Desired{Incarnation: incarnation, Fenced: m.GetFenced(), Index: m.GetIndex(), Since: m.GetSince()}
	for _, g := range m.GetGone() {
		d.Gone = append(d.Gone, plan.Key{Action: g.GetActionId(), Attempt: g.GetAttempt(), Incarnation: incarnation})
	}
	a.driver.tell(func(p *plan.Plan, _ int64) {
		for _, as := range m.GetAssignments() {
			d.Assignments = append(d.Assignments, a.assignment(p, incarnation, as))
		}
		gap = p.Desire(d)
		if p.Told(incarnation, m.GetIndex()) {
			a.desireEngines(p, m)
			a.homes.told(m)
			if a.ahead != nil {
				a.ahead.told(incarnation, m)
			}
			a.forks.told(m, a.homes.uses)
			a.mover.desire(incarnation, m.GetMigrations())
		}
	})
	return gap
}

func (a *agent) assignment(p *plan.Plan, incarnation uint64, as *rotav1.Assignment) plan.Assignment {
	out := plan.Assignment{
		Key:  plan.Key{Action: as.GetActionId(), Attempt: as.GetAttempt(), Incarnation: incarnation},
		Stop: as.GetStop(), Engine: engineOf(as), Freeze: as.GetFreeze(), Shares: as.GetSharesCpus(),
	}
	for _, gpu := range as.GetGpus() {
		out.GPUs = append(out.GPUs, int(gpu))
	}
	cpus, err := a.specs.cpus(as.GetCpus())
	if a.inv.Pinned {
		out.CPUs = cpus
	}
	if out.Stop || p.Knows(out.Key) {
		if err != nil {
			a.log.Error("the CPUs of an attempt are left as they are", "action", out.Key.Action, "attempt", out.Key.Attempt, "error", err)
		}
		return out
	}
	as.Traceparent = a.traces.begin(out.Key, as.GetTraceparent(), a.cfg.Name)
	spec, err := a.specs.spec(out.Key, as)
	if err == nil && as.GetEngine() != "" && out.Engine == (plan.Engine{}) {
		err = errors.New("the server named an engine and gave no GPUs; report this as a bug")
	}
	if err != nil {
		a.log.Error("attempt refused", "action", out.Key.Action, "attempt", out.Key.Attempt, "error", err)
		out.Refused = err.Error()
		return out
	}
	out.Work = work{spec, as.GetHttp(), as.GetContainer(), as.GetSnapshotId()}
	return out
}
