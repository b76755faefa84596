package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// settlePause is between two looks at what is left.
const settlePause = 200 * time.Millisecond

// leftMax is how many things are named that should be gone.
const leftMax = 20

// settler brings a healed cluster to rest.
type settler struct {
	*worker
	api *client.Client
	// declared are the declarations of the served models, in their order, that engines are to
	// run with in the end.
	declared []string
	// heard are the last steps of policies whose batches are known.
	heard map[string]uint64
	// revision is that of the last list of actions.
	revision uint64
}

// Settle brings a cluster to rest after everything was healed and all workloads were told to
// end, which was at a time of the record's clock. It ends what nothing
// else would end: held actions, open trajectories, drains, jobs. When all actions have
// ended and all nodes are up and free, it lists all actions. What is in the way
// of that when ctx is done is told by Healing.Left.
func Settle(ctx context.Context, env *Env, stopped int64) (final []history.Action, healing history.Healing, err error) {
	healing.Stopped = stopped
	if len(env.Servers) == 0 {
		return nil, healing, errNoServers
	}
	if env.HeldPool == "" {
		return nil, healing, errNoHeldPool
	}
	api, err := env.library()
	if err != nil {
		return nil, healing, err
	}
	defer api.Close()
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	s := &settler{worker: env.newWorker(conns), api: api, heard: map[string]uint64{}}

	if err = s.firstCommit(ctx); err != nil {
		return nil, healing, err
	}
	for _, look := range []func(context.Context) ([]string, error){s.rest, s.noEngines} {
		if healing.Left, err = untilNothing(ctx, look); err != nil {
			return nil, healing, err
		}
	}
	healing.Settled = env.Record.Now()
	if err = s.finalTurns(ctx); err != nil {
		return nil, healing, err
	}
	if final, err = s.final(ctx); err != nil {
		return final, healing, err
	}
	healing.Revision = s.revision
	return final, healing, s.watchersArrive(ctx)
}

// arriveMax is how long watchers may take to come to the last revision. A server tells them
// every 5 s how far they are; a stream that broke without a word takes some seconds more.
const arriveMax = 15 * time.Second

// watchersArrive waits until the watchers at all members have come to the last revision. The
// checker says which have not.
func (s *settler) watchersArrive(ctx context.Context) error {
	members, err := s.env.members(ctx)
	if err != nil {
		return err
	}
	behind := func(m Server) bool { return s.env.watched.behind(m.ID, s.revision) }
	for until := time.Now().Add(arriveMax); time.Now().Before(until) && slices.ContainsFunc(members, behind); {
		if err := backoff.Sleep(ctx, settlePause); err != nil {
			return err
		}
	}
	return nil
}

// untilNothing looks until nothing is left.
func untilNothing(ctx context.Context, look func(context.Context) ([]string, error)) (left []string, err error) {
	for {
		left, err = look(ctx)
		if err == nil && len(left) == 0 {
			return nil, nil
		}
		if backoff.Sleep(ctx, settlePause) != nil {
			return left, fmt.Errorf("the cluster did not come to rest: %d things are left: %w", len(left), ctx.Err())
		}
	}
}

// library makes a client that goes to any server and repeats its calls.
func (env *Env) library() (*client.Client, error) {
	var addrs []string
	for _, s := range env.Servers {
		addrs = append(addrs, s.Addr)
	}
	return client.New(client.Config{Addrs: addrs, TLS: env.TLS})
}

// firstCommit writes until a write is acknowledged.
func (s *settler) firstCommit(ctx context.Context) error {
	q := s.env.newHeld(ctx, s.worker)
	for {
		op := s.submit(ctx, q)
		if op.Outcome == history.OK {
			return nil
		}
		if backoff.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("nothing was committed after the healing: the last error is %s: %w", op.Error, ctx.Err())
		}
		s.roam()
	}
}

// rest ends what can be ended, and returns what is left.
func (s *settler) rest(ctx context.Context) (left []string, err error) {
	for _, look := range []func(context.Context) ([]string, error){s.actions, s.trajectories, s.nodes, s.quotas, s.jobs, s.turns, s.ledger, s.engines, s.rollouts, s.rewards} {
		more, err := look(ctx)
		if err != nil {
			return left, err
		}
		left = append(left, more...)
	}
	if s.env.Witness != nil {
		for _, e := range s.env.Witness.Alive() {
			left = append(left, fmt.Sprintf("attempt %d of action %d is alive on node %s", e.Attempt, e.Action, e.Node))
		}
	}
	if n := len(left); n > leftMax {
		left = append(left[:leftMax], fmt.Sprintf("and %d more", n-leftMax))
	}
	return left, nil
}

func (s *settler) actions(ctx context.Context) (left []string, err error) {
	var held []uint64
	err = s.each(ctx, liveStates, func(a *rotav1.Action) {
		left = append(left, fmt.Sprintf("action %d (%s) is %s", a.Id, a.Spec.GetName(), actionState(a.State)))
		if a.Spec.GetPool() == s.env.HeldPool {
			held = append(held, a.Id)
		}
	})
	if len(held) > 0 {
		s.cancelAll(ctx, held)
	}
	return left, err
}

// cancelAll cancels many actions with one call, which is recorded as one of
// each.
func (s *settler) cancelAll(ctx context.Context, ids []uint64) {
	const most = 4096
	ids = ids[:min(len(ids), most)]
	s.call(ctx, history.Op{Verb: history.Cancel, Target: ids[0]}, func(ctx context.Context, c *conn, first *history.Op) error {
		var calls []*history.Call
		for _, id := range ids[1:] {
			calls = append(calls, s.env.Record.Begin(history.Op{Client: s.client, Verb: history.Cancel, Server: first.Server, Target: id}))
		}
		_, err := c.actions.CancelActions(ctx, &rotav1.CancelActionsRequest{Ids: ids})
		for _, call := range calls {
			outcome, reason := judge(err)
			call.Error, call.Refused = reason, refusedByState(err)
			call.Finish(outcome)
		}
		return err
	})
}

func (s *settler) trajectories(ctx context.Context) (left []string, err error) {
	req := &rotav1.ListTrajectoriesRequest{PageSize: 1000}
	for {
		page, err := s.api.Trajectories.ListTrajectories(ctx, req)
		if err != nil {
			return left, err
		}
		for _, t := range page.Trajectories {
			left = append(left, fmt.Sprintf("trajectory %d is %s", t.Id, trajectoryState(t)))
			s.closeTrajectory(ctx, t.Id)
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return left, nil
		}
	}
}

func (s *settler) nodes(ctx context.Context) (left []string, err error) {
	for _, name := range s.env.Nodes {
		got, err := s.api.Nodes.GetNode(ctx, &rotav1.GetNodeRequest{Name: name})
		if err != nil {
			return append(left, fmt.Sprintf("node %s: %v", name, err)), nil
		}
		n, cores := got.Node, 0
		for _, numa := range n.NumaNodes {
			cores += len(numa.Cpus)
		}
		switch {
		case n.State != rotav1.NodeState_NODE_STATE_UP:
			left = append(left, fmt.Sprintf("node %s is %s", name, plain(n.State.String(), "NODE_STATE_")))
		case n.Draining:
			left = append(left, fmt.Sprintf("node %s is draining", name))
			s.drain(ctx, name, false)
		case len(n.FreeCpus) != cores || n.FreeMemoryBytes != n.MemoryBytes:
			left = append(left, fmt.Sprintf("node %s holds %d cores and %d bytes", name, cores-len(n.FreeCpus), n.MemoryBytes-n.FreeMemoryBytes))
		case len(n.FreeGpus) != int(n.GetGpus().GetCount()):
			left = append(left, fmt.Sprintf("node %s holds GPUs: only %v of %d are free", name, n.FreeGpus, n.GetGpus().GetCount()))
		}
	}
	return left, nil
}

// quotas whose units have not all come back.
func (s *settler) quotas(ctx context.Context) (left []string, err error) {
	list, err := s.api.Quotas.ListQuotas(ctx, &rotav1.ListQuotasRequest{})
	for _, q := range list.GetQuotas() {
		if q.HeldUnits+q.WindowUnits+q.WaitingActions > 0 || q.Halted != "" {
			left = append(left, fmt.Sprintf("quota %s: %d units are held and %d in a window, %d actions wait %s", q.Name, q.HeldUnits, q.WindowUnits, q.WaitingActions, q.Halted))
		}
	}
	return left, err
}

// final lists all actions as they ended.
func (s *settler) final(ctx context.Context) (all []history.Action, err error) {
	err = s.each(ctx, nil, func(a *rotav1.Action) {
		all = append(all, history.Action{
			ID: a.Id, State: actionState(a.State), Attempt: a.Attempt, Node: a.Node, Name: a.Spec.GetName(),
			Reason: plain(a.Result.GetReason().String(), "END_REASON_"),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list all actions: %w", err)
	}
	return all, nil
}

// each visits all actions in some states, or in any, linearizably.
func (s *settler) each(ctx context.Context, states []rotav1.ActionState, visit func(*rotav1.Action)) error {
	req := &rotav1.ListActionsRequest{PageSize: 1000, States: states}
	for {
		page, err := s.api.Actions.ListActions(ctx, req)
		if err != nil {
			return err
		}
		for _, a := range page.Actions {
			visit(a)
		}
		s.revision = page.Revision
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return nil
		}
	}
}

// Hashes returns the state hash of every member of the cluster at one index. The
// cluster must be at rest: as long as the log moves on between the answers, it
// asks again.
func Hashes(ctx context.Context, env *Env) ([]history.Sample, error) {
	members, err := env.members(ctx)
	if err != nil {
		return nil, err
	}
	conns, http := env.connectTo(members)
	defer http.CloseIdleConnections()
	for index := uint64(0); ; {
		samples, same, err := env.hashes(ctx, conns, index)
		if err == nil && same {
			return samples, nil
		}
		for _, s := range samples {
			index = max(index, s.HashIndex)
		}
		if backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			return nil, fmt.Errorf("the servers did not tell their state at one index: %w (%v)", ctx.Err(), err)
		}
	}
}

// members are the servers of the Raft group, which may have changed since the
// run began.
func (env *Env) members(ctx context.Context) (members []Server, err error) {
	api, err := env.library()
	if err != nil {
		return nil, err
	}
	defer api.Close()
	peers, err := api.Operator.ListPeers(ctx, &rotav1.ListPeersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the servers: %w", err)
	}
	for _, p := range peers.Peers {
		members = append(members, Server{ID: p.Id, Addr: p.Address})
	}
	return members, nil
}

// hashes asks all servers once, and says whether they answered for one index.
func (env *Env) hashes(ctx context.Context, conns []*conn, index uint64) (samples []history.Sample, same bool, err error) {
	same = true
	for _, c := range conns {
		s, err := env.sample(ctx, c, index)
		if err != nil {
			return samples, false, fmt.Errorf("%s: %w", c.id, err)
		}
		samples = append(samples, s)
		same = same && s.HashIndex == samples[0].HashIndex
	}
	return samples, same, nil
}
