package dispatch

import (
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// token is the fencing token of an attempt on the stream's incarnation.
type token struct {
	action  state.ActionID
	attempt uint32
}

// stream is one agent's connection.
type stream struct {
	trace   Trace
	machine Machine
	req     *rotav1.WatchNodeRequest
	dirty   chan struct{} // holds one mark
	// sent has the attempts that the agent was told of, nil before the first message.
	sent map[token]*sentAttempt
	// index is that of the newest message, round how many there were.
	index, round uint64
	// specs are the declarations of engines that were decoded, by generation.
	specs map[uint64]*rotav1.EngineSpec
	// whole asks for every attempt in the next message.
	whole bool
	// snapshots are those that the agent was told of; nil: none were yet.
	snapshots *rotav1.NodeSnapshots
	// placed: a trajectory with a container may have got the node since the message before.
	placed atomic.Bool
	// sandboxes are the trajectories whose sandboxes the agent was told of, while they are open.
	sandboxes map[state.TrajectoryID]struct{}
}

// sentAttempt is an attempt that the agent knows.
type sentAttempt struct {
	// row is what it was told. Rows never change: another row is a change.
	row *state.Attempt
	// shared are the cores that its node shares, if it does share them.
	shared state.CoreSet
	// timeout is the run timeout, which is repeated in each assignment.
	timeout *durationpb.Duration
	// engine is the model whose engine it needs, as it was told first.
	engine string
	// round is that of the newest state with the attempt in it.
	round uint64
}

// mark makes the stream look at the state again.
func (s *stream) mark() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

func (s *stream) nodeID() (id state.NodeID) {
	s.machine.View(func(st *state.State) {
		if n := st.NodeByName(s.req.Name); n != nil {
			id = n.ID
		}
	})
	return id
}

// grant is an attempt and what it is an attempt of. Rows never change, so they
// can be read after the view.
type grant struct {
	attempt   *state.Attempt
	shared    state.CoreSet // of the node
	action    *state.Action
	namespace string
	keys      []*rotav1.QuotaKey
	engine    string
	// common is the encoded specification of its trajectory, snapshot what that began with.
	common   string
	snapshot state.FileSnapshotID
	gang     *rotav1.GangPlace // nil: none
}

// commonOf is what the commands of an action's trajectory have in common, and what its files began
// with.
func commonOf(st *state.State, a *state.Action) (common string, snapshot state.FileSnapshotID) {
	if t := st.Trajectory(a.Trajectory); t != nil {
		return t.Spec, t.Snapshot
	}
	return "", 0
}

func quotaKeys(st *state.State, a *state.Action) (keys []*rotav1.QuotaKey) {
	for i, key := range a.QuotaKeys {
		keys = append(keys, &rotav1.QuotaKey{Quota: st.Quota(a.Needs.Quotas[i].Quota).Name, Key: key + 1})
	}
	return keys
}

// settled adds where the answer of a call says what it used of its quotas.
func settled(keys []*rotav1.QuotaKey, spec *rotav1.ActionSpec) []*rotav1.QuotaKey {
	out := slices.Clone(keys)
	for _, q := range spec.GetResources().GetQuotas() {
		i := slices.IndexFunc(out, func(k *rotav1.QuotaKey) bool { return k.Quota == q.Quota })
		if i >= 0 && q.Settle != "" {
			out[i] = &rotav1.QuotaKey{Quota: q.Quota, Key: out[i].Key, Settle: q.Settle}
		}
	}
	return out
}

// next returns the desired state as it is now, or what changed of it since the message
// before.
func (s *stream) next() (*rotav1.WatchNodeResponse, error) {
	msg := &rotav1.WatchNodeResponse{}
	changes := s.req.Changes && s.sent != nil && !s.whole
	s.whole = false
	placed := s.placed.Swap(false) // before the view: what is placed after that marks it again
	if s.sent == nil {
		s.sent = map[token]*sentAttempt{}
	}
	s.round++
	known := 0 // attempts of the state that were told before
	var grants []grant
	var engines []resident
	var moves transfer
	var sandboxes []*state.Trajectory
	s.machine.View(func(st *state.State) {
		msg.Index = st.Meta().Applied
		node := st.NodeByName(s.req.Name)
		if node == nil || node.Incarnation != s.req.Incarnation || node.State != state.NodeUp {
			msg.Fenced = true
			return
		}
		st.Attempts(node.ID, func(a *state.Attempt) bool {
			if told := s.sent[token{a.Action, a.Number}]; told != nil {
				known++
				told.round = s.round
				if changes && told.row == a && (!a.Shares || told.shared == node.Shared) {
					return true
				}
			}
			action := st.Action(a.Action) // there is one: an invariant of state
			common, snapshot := commonOf(st, action)
			grants = append(grants, grant{a, node.Shared, action, st.Namespace(action.Namespace).Name, quotaKeys(st, action), engineOf(st, action), common, snapshot, placeInGang(st, action)})
			return true
		})
		engines, msg.RemovedModels = enginesOn(st, node), s.removedOn(st, node)
		if !changes {
			msg.OpenTrajectories = openOn(st, node)
		}
		if placed || !changes {
			sandboxes = s.newSandboxes(st, node)
		}
		moves = transferAt(st, node)
		msg.Snapshots = snapshotsOn(st, node)
	})
	if msg.Fenced {
		return msg, nil
	}
	s.newSnapshots(msg)
	gone := s.forget(known)
	if changes {
		msg.Since, msg.Gone = s.index, gone
	}
	for _, g := range grants {
		assignment, err := s.assign(g)
		if err != nil {
			return nil, err
		}
		msg.Assignments = append(msg.Assignments, assignment)
	}
	s.index = msg.Index
	var err error
	if msg.Sandboxes, err = desiredSandboxes(sandboxes); err != nil {
		return nil, err
	}
	if msg.Engines, err = s.desired(engines); err != nil {
		return nil, err
	}
	msg.Migrations, err = moves.desired()
	return msg, err
}

// openOn are the trajectories that are open on a node.
func openOn(st *state.State, n *state.Node) *rotav1.OpenTrajectories {
	open := &rotav1.OpenTrajectories{}
	st.NodeTrajectories(n.ID, func(t *state.Trajectory) bool {
		open.Ids = append(open.Ids, uint64(t.ID))
		return true
	})
	return open
}

// forget drops what was told and is not in the newest state, which has so many of the
// attempts that were told, and returns it.
func (s *stream) forget(known int) (gone []*rotav1.GoneAttempt) {
	if known == len(s.sent) {
		return nil
	}
	for key, told := range s.sent {
		if told.round != s.round {
			delete(s.sent, key)
			gone = append(gone, &rotav1.GoneAttempt{ActionId: uint64(key.action), Attempt: key.attempt})
		}
	}
	return gone
}

// assign makes an attempt into what the agent is told of it, and notes that.
func (s *stream) assign(g grant) (*rotav1.Assignment, error) {
	a := &rotav1.Assignment{
		ActionId: uint64(g.attempt.Action), Attempt: g.attempt.Number, Stop: g.attempt.Stop,
		MemoryBytes: g.attempt.Limit, Namespace: g.namespace,
		TrajectoryId: uint64(g.action.Trajectory), QuotaKeys: g.keys, Gpus: g.attempt.Chunk.GPUs().Slice(),
	}
	if g.attempt.Ice <= state.IceWanted { // what is frozen has none, or not all yet
		a.Cpus = g.attempt.Cores.Slice()
	}
	if g.attempt.Shares {
		a.Cpus, a.SharesCpus = g.shared.Slice(), true
	}
	if g.attempt.Ice != state.IceNone {
		a.Freeze = g.attempt.Pause
	}
	if g.attempt.Least > 0 {
		a.MaxCores = g.action.CoresMax
	}
	key := token{g.attempt.Action, g.attempt.Number}
	if told := s.sent[key]; told != nil {
		told.row, told.shared, a.RunTimeout, a.Engine = g.attempt, g.shared, told.timeout, told.engine
		return a, nil
	}
	spec := new(rotav1.ActionSpec)
	if err := spec.UnmarshalVT(g.action.Spec); err != nil {
		return nil, fmt.Errorf("decode the spec of action %d: %w", g.attempt.Action, err)
	}
	if err := addCommon(spec.Command, g.common); err != nil {
		return nil, fmt.Errorf("decode the specification of trajectory %d: %w", g.action.Trajectory, err)
	}
	if spec.Command != nil {
		var err error
		if a.Container, err = containerOf(g.action.Trajectory, g.common); err != nil {
			return nil, err
		}
	}
	a.Command, a.Http, a.RunTimeout, a.Engine = spec.Command, spec.Http, spec.RunTimeout, g.engine
	a.Stdin, a.Tty, a.SnapshotId = spec.Stdin, spec.Tty, uint64(g.snapshot)
	a.Gang, a.QuotaKeys = g.gang, settled(g.keys, spec)
	if a.Traceparent = spec.Traceparent; s.trace != nil {
		a.Traceparent = s.trace(spec.Traceparent, g.action, g.attempt)
	}
	s.sent[key] = &sentAttempt{g.attempt, g.shared, spec.RunTimeout, g.engine, s.round}
	return a, nil
}

// addCommon adds to a command what those of its trajectory have in common.
func addCommon(c *rotav1.Command, common string) error {
	if c == nil || common == "" {
		return nil
	}
	t := new(rotav1.TrajectorySpec)
	if err := t.UnmarshalVT([]byte(common)); err != nil {
		return err
	}
	if c.Dir == "" {
		c.Dir = t.Dir
	}
	if c.Env == nil {
		c.Env = t.Env
		return nil
	}
	for name, value := range t.Env {
		if _, own := c.Env[name]; !own {
			c.Env[name] = value
		}
	}
	return nil
}
