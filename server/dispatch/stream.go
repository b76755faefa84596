package dispatch

import (
	"fmt"

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
	machine Machine
	req     *rotav1.WatchNodeRequest
	dirty   chan struct{} // holds one mark
	// sent has the attempts of the newest message, with the run timeout that is
	// repeated in each.
	sent map[token]*durationpb.Duration
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
	action    *state.Action
	namespace string
	keys      []*rotav1.QuotaKey
}

func quotaKeys(st *state.State, a *state.Action) (keys []*rotav1.QuotaKey) {
	for i, key := range a.QuotaKeys {
		keys = append(keys, &rotav1.QuotaKey{Quota: st.Quota(a.Needs.Quotas[i].Quota).Name, Key: key + 1})
	}
	return keys
}

// next returns the desired state as it is now.
func (s *stream) next() (*rotav1.WatchNodeResponse, error) {
	msg := &rotav1.WatchNodeResponse{}
	var grants []grant
	s.machine.View(func(st *state.State) {
		msg.Index = st.Meta().Applied
		node := st.NodeByName(s.req.Name)
		if node == nil || node.Incarnation != s.req.Incarnation || node.State != state.NodeUp {
			msg.Fenced = true
			return
		}
		st.Attempts(node.ID, func(a *state.Attempt) bool {
			action := st.Action(a.Action) // there is one: an invariant of state
			grants = append(grants, grant{a, action, st.Namespace(action.Namespace).Name, quotaKeys(st, action)})
			return true
		})
	})
	sent := make(map[token]*durationpb.Duration, len(grants))
	for _, g := range grants {
		assignment, err := s.assign(g, sent)
		if err != nil {
			return nil, err
		}
		msg.Assignments = append(msg.Assignments, assignment)
	}
	s.sent = sent
	return msg, nil
}

// assign makes an attempt into what the agent is told of it and notes that in
// sent.
func (s *stream) assign(g grant, sent map[token]*durationpb.Duration) (*rotav1.Assignment, error) {
	a := &rotav1.Assignment{
		ActionId: uint64(g.attempt.Action), Attempt: g.attempt.Number, Stop: g.attempt.Stop,
		Cpus: g.attempt.Cores.Slice(), MemoryBytes: g.attempt.Limit, Namespace: g.namespace,
		TrajectoryId: uint64(g.action.Trajectory), QuotaKeys: g.keys, Gpus: g.attempt.Chunk.GPUs().Slice(),
	}
	key := token{g.attempt.Action, g.attempt.Number}
	if timeout, known := s.sent[key]; known {
		sent[key], a.RunTimeout = timeout, timeout
		return a, nil
	}
	spec := new(rotav1.ActionSpec)
	if err := spec.UnmarshalVT(g.action.Spec); err != nil {
		return nil, fmt.Errorf("decode the spec of action %d: %w", g.attempt.Action, err)
	}
	a.Command, a.Http, a.RunTimeout = spec.Command, spec.Http, spec.RunTimeout
	sent[key] = spec.RunTimeout
	return a, nil
}
