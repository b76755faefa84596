package rpc

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

const (
	// routesBatch is how many trajectories travel in one message, and are read under one view.
	routesBatch = 1024
	// routesDirtyMax bounds what is remembered for a watcher that is slow. One that is further
	// behind is sent everything again.
	routesDirtyMax = 1 << 16
	// routesCatchUp is how long a new watcher waits for a leader before it is told what this
	// server knows.
	routesCatchUp = 2 * time.Second
	// routesLostMax is at how many ticks in a row no leader may be known before a watch ends. One
	// is no more than an election.
	routesLostMax = 2
)

// Routes wakes those who watch routes, and remembers for each what changed since it was told.
// Changes of one thing are one: a watcher is sent the newest.
type Routes struct {
	mu       sync.Mutex
	watchers map[*routeWatcher]struct{}
}

// NewRoutes returns a hub without watchers.
func NewRoutes() *Routes { return &Routes{watchers: map[*routeWatcher]struct{}{}} }

// RouteChanges is what one entry changed of routes.
type RouteChanges struct {
	Trajectories      []state.TrajectoryID
	Workers, Policies []string
	Rewards           []string
	// All: the whole state was replaced.
	All bool
}

// RouteChangesOf collects what effects say of routes.
func RouteChangesOf(effects []fsm.Effect) (c RouteChanges) {
	for _, e := range effects {
		switch e.Kind {
		case fsm.EffectRoute:
			c.Trajectories = append(c.Trajectories, e.Trajectory)
		case fsm.EffectWorker:
			c.Workers = append(c.Workers, e.Name)
		case fsm.EffectPolicy:
			c.Policies = append(c.Policies, e.Name)
		case fsm.EffectReward:
			c.Rewards = append(c.Rewards, e.Name)
		case fsm.EffectRestored:
			c.All = true
		}
	}
	return c
}

// Notify tells the watchers what changed. It does not block and may be called from within Apply.
func (h *Routes) Notify(c RouteChanges) {
	if len(c.Trajectories)+len(c.Workers)+len(c.Policies)+len(c.Rewards) == 0 && !c.All {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.dirty.add(&c)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Watching returns how many watchers there are.
func (h *Routes) Watching() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers)
}

// routeWatcher is one stream; dirty is guarded by the hub's lock.
type routeWatcher struct {
	wake  chan struct{}
	dirty dirtyRoutes
}

// dirtyRoutes is what a watcher has not been told.
type dirtyRoutes struct {
	all               bool
	trajectories      map[state.TrajectoryID]struct{}
	workers, policies map[string]struct{}
	rewards           map[string]struct{}
}

func (d *dirtyRoutes) add(c *RouteChanges) {
	if d.all || c.All || len(d.trajectories)+len(c.Trajectories) > routesDirtyMax {
		*d = dirtyRoutes{all: true}
		return
	}
	if d.trajectories == nil {
		*d = dirtyRoutes{trajectories: map[state.TrajectoryID]struct{}{}, workers: map[string]struct{}{}, policies: map[string]struct{}{}, rewards: map[string]struct{}{}}
	}
	for _, id := range c.Trajectories {
		d.trajectories[id] = struct{}{}
	}
	for _, name := range c.Workers {
		d.workers[name] = struct{}{}
	}
	for _, name := range c.Policies {
		d.policies[name] = struct{}{}
	}
	for _, name := range c.Rewards {
		d.rewards[name] = struct{}{}
	}
}

func (h *Routes) join() *routeWatcher {
	w := &routeWatcher{wake: make(chan struct{}, 1), dirty: dirtyRoutes{all: true}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[w] = struct{}{}
	return w
}

func (h *Routes) leave(w *routeWatcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

// take returns what a watcher has not been told. What it is of in the state is read after that.
func (h *Routes) take(w *routeWatcher) dirtyRoutes {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := w.dirty
	w.dirty = dirtyRoutes{}
	return d
}

// WatchRoutes streams what gateways must know, from this server's own state. It holds nothing
// while it sends, so a slow watcher delays nothing: it is sent the newest of what changed
// meanwhile, or all of it.
func (s *Server) WatchRoutes(ctx context.Context, req *rotav1.WatchRoutesRequest, stream *connect.ServerStream[rotav1.WatchRoutesResponse]) error {
	if err := checkText("policy", req.Policy, state.PolicyNameBytesMax).err(); err != nil {
		return err
	}
	stale, err := s.settle(ctx)
	if err != nil {
		return err
	}
	w := s.Routes.join()
	defer s.Routes.leave(w)
	alive := time.NewTicker(s.routesTick)
	defer alive.Stop()
	for lost := 0; ; {
		dirty := s.Routes.take(w)
		if dirty.all {
			err = s.sendAllRoutes(req.Policy, stale, stream.Send)
			stale = false // what this server sends later is not older than this
		} else {
			err = s.sendRoutes(req.Policy, dirty, stream.Send)
		}
		if err != nil {
			return err
		}
		select {
		case <-w.wake:
		case <-alive.C: // an empty message shows that the stream is
			if lost++; s.leaderKnown() {
				lost = 0
			}
			if lost >= routesLostMax {
				return s.lostLeader()
			}
			if err := stream.Send(&rotav1.WatchRoutesResponse{}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle waits a while for this server to know what the cluster knows. If it does not come to know
// it, what it has is stale. A server that has nothing, or will never know more, is no use.
func (s *Server) settle(ctx context.Context) (stale bool, err error) {
	short, cancel := context.WithTimeout(ctx, routesCatchUp)
	defer cancel()
	if err = s.catchUp(short, false); err == nil {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if s.Machine.Level() == 0 {
		return false, unavailable(time.Second, "NOT_BOOTSTRAPPED", "this server knows nothing yet: watch at another server")
	}
	if f := s.asFailure(err); f != nil && f.reason == "NOT_A_MEMBER" {
		return false, f
	}
	return true, nil
}

// lostLeader is how a watch ends at a server that hears nothing new: the others may have a leader.
func (s *Server) lostLeader() error {
	if f := s.whyNoLeader(); f != nil {
		return f
	}
	return unavailable(time.Second, "NO_LEADER", "server %s knows no leader, so it hears of no changes: watch at another server", s.ServerID)
}

// sendAllRoutes sends everything, and marks the begin and the end of it.
func (s *Server) sendAllRoutes(policy string, stale bool, send func(*rotav1.WatchRoutesResponse) error) error {
	st := s.Machine.Fork()
	m := &rotav1.WatchRoutesResponse{Reset_: true, Stale: stale}
	st.Policies("", func(p *state.Policy) bool {
		if p.Suspended && (policy == "" || p.Name == policy) {
			m.SuspendedPolicies = append(m.SuspendedPolicies, p.Name)
		}
		return true
	})
	st.Workers("", func(w *state.Worker) bool {
		if policy == "" || w.Policy == policy {
			m.Workers = append(m.Workers, workerMessage(st, w))
		}
		return true
	})
	err := describeRewards(st, policy, slices.Values(rewardNames(st)), m)
	if err != nil {
		return err
	}
	st.Generations(0, func(g *state.Generation) bool {
		if g.Ended || policy != "" && g.Policy != policy {
			return true
		}
		if m.Routes = append(m.Routes, routeMessage(g)); len(m.Routes) == routesBatch {
			err = send(m)
			m = &rotav1.WatchRoutesResponse{Stale: stale}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	m.Complete = true
	return send(m)
}

// sendRoutes sends what is dirty as it is now.
func (s *Server) sendRoutes(policy string, d dirtyRoutes, send func(*rotav1.WatchRoutesResponse) error) error {
	m := &rotav1.WatchRoutesResponse{}
	var err error
	s.Machine.View(func(st *state.State) {
		describePolicies(st, policy, d, m)
		err = describeRewards(st, policy, slices.Values(slices.Sorted(maps.Keys(d.rewards))), m)
	})
	if err != nil {
		return err
	}
	ids := slices.Sorted(maps.Keys(d.trajectories))
	for first := true; first || len(ids) > 0; first = false {
		batch := ids[:min(len(ids), routesBatch)]
		ids = ids[len(batch):]
		s.Machine.View(func(st *state.State) {
			for _, id := range batch {
				g := st.Generation(id)
				switch {
				case g == nil || g.Ended && (policy == "" || g.Policy == policy):
					m.EndedTrajectoryIds = append(m.EndedTrajectoryIds, uint64(id))
				case policy == "" || g.Policy == policy:
					m.Routes = append(m.Routes, routeMessage(g))
				}
			}
		})
		if m.SizeVT() == 0 {
			continue // all of it is of other policies
		}
		if err := send(m); err != nil {
			return err
		}
		m = &rotav1.WatchRoutesResponse{}
	}
	return nil
}

// describePolicies adds the workers and policies that are dirty. A worker of another policy is
// as one that was removed: it may have been of this one.
func describePolicies(st *state.State, policy string, d dirtyRoutes, m *rotav1.WatchRoutesResponse) {
	for _, name := range slices.Sorted(maps.Keys(d.workers)) {
		if w := st.Worker(name); w != nil && (policy == "" || w.Policy == policy) {
			m.Workers = append(m.Workers, workerMessage(st, w))
		} else {
			m.RemovedWorkers = append(m.RemovedWorkers, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.policies)) {
		switch p := st.Policy(name); {
		case policy != "" && name != policy:
		case p != nil && p.Suspended:
			m.SuspendedPolicies = append(m.SuspendedPolicies, name)
		default:
			m.ResumedPolicies = append(m.ResumedPolicies, name)
		}
	}
}

// describeRewards adds reward functions, which are no matter of a policy.
func describeRewards(st *state.State, policy string, names iter.Seq[string], m *rotav1.WatchRoutesResponse) error {
	if policy != "" {
		return nil
	}
	for name := range names {
		r := st.Reward(name)
		if r == nil {
			m.RemovedRewards = append(m.RemovedRewards, name)
			continue
		}
		described, err := rewardMessage(st, r, 0)
		if err != nil {
			return err
		}
		m.Rewards = append(m.Rewards, described)
	}
	return nil
}

func rewardNames(st *state.State) (names []string) {
	st.Rewards("", func(r *state.Reward) bool {
		names = append(names, r.Name)
		return true
	})
	return names
}

func routeMessage(g *state.Generation) *rotav1.Route {
	return &rotav1.Route{
		TrajectoryId: uint64(g.Trajectory), Policy: g.Policy, Worker: g.Worker, Priority: g.Priority, Suspended: g.Suspended,
	}
}
