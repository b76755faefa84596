package rpc

import (
	"context"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Bounds of the groups in one answer. Groups may have many members.
const (
	answeredGroupsMax  = 256
	answeredMembersMax = 1 << 14
)

// CreateRollout declares prompt groups.
func (s *Server) CreateRollout(ctx context.Context, req *rotav1.CreateRolloutRequest) (*rotav1.CreateRolloutResponse, error) {
	if err := checkRollout(req).err(); err != nil {
		return nil, err
	}
	c := &logv1.CreateRollout{
		Namespace: orDefault(req.Namespace), Name: req.Spec.Name, Policy: req.Spec.Policy, Groups: req.Spec.Groups,
		SamplesPerGroup: req.Spec.SamplesPerGroup, Redundant: req.Spec.Redundant, Staleness: req.Spec.Staleness,
	}
	c.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) {
		for _, text := range []string{c.Namespace, c.Name, c.Policy} {
			digestText(d, text)
		}
		for _, n := range []uint32{c.Groups, c.SamplesPerGroup, c.Redundant, c.Staleness} {
			digestNumber(d, uint64(n))
		}
	})
	var err error
	if c.PolicyOwner, err = s.fedPolicy(ctx, c.Policy, c.Namespace); err != nil {
		return nil, err
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: c}})
	if err != nil {
		return nil, err
	}
	r, err := s.rollout(state.RolloutID(result.FirstId))
	if err != nil { // a repetition: it has ended long since
		r = &rotav1.Rollout{Id: result.FirstId, Namespace: c.Namespace, Spec: req.Spec, State: rotav1.RolloutState_ROLLOUT_STATE_CLOSED}
	}
	return &rotav1.CreateRolloutResponse{Rollout: r, Replayed: result.Replayed}, nil
}

// CloseRollout closes what has made no sample.
func (s *Server) CloseRollout(ctx context.Context, req *rotav1.CloseRolloutRequest) (*rotav1.CloseRolloutResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	if _, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CloseRollout{CloseRollout: &logv1.CloseRollout{Id: req.Id}}}); err != nil {
		return nil, err
	}
	r, err := s.rollout(state.RolloutID(req.Id))
	if err != nil { // forgotten since; it was closed all the same
		r = &rotav1.Rollout{Id: req.Id, State: rotav1.RolloutState_ROLLOUT_STATE_CLOSED}
	}
	return &rotav1.CloseRolloutResponse{Rollout: r}, nil
}

// GetRollout returns a rollout, and some of its groups if asked for.
func (s *Server) GetRollout(ctx context.Context, req *rotav1.GetRolloutRequest) (*rotav1.GetRolloutResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	id := state.RolloutID(req.Id)
	r, err := s.rollout(id)
	if err != nil {
		return nil, err
	}
	resp := &rotav1.GetRolloutResponse{Rollout: r, Predictions: s.predictions(id)}
	if req.Groups {
		resp.Groups = s.rolloutGroups(id, req.FirstGroup)
	}
	return resp, nil
}

// predictedMembersMax bounds how many members of a rollout are looked at for predictions.
const predictedMembersMax = 1 << 16

// predictions counts whose predictions the trajectories of a rollout are ordered by.
func (s *Server) predictions(id state.RolloutID) *rotav1.RolloutPredictions {
	st, k, members := s.Machine.Fork(), &rotav1.RolloutPredictions{}, 0
	st.RolloutGroups(id, 0, func(group *state.RolloutGroup) bool {
		for i := range group.Members {
			switch g := st.Generation(group.Members[i].Trajectory); {
			case g == nil || g.Ended:
			case g.Service.Said:
				k.Service++
			default:
				k.Own++
			}
		}
		members += len(group.Members)
		return members < predictedMembersMax
	})
	return k
}

func (s *Server) rollout(id state.RolloutID) (m *rotav1.Rollout, err error) {
	s.Machine.View(func(st *state.State) {
		switch r := st.Rollout(id); {
		case r != nil:
			m = rolloutMessage(st, r)
		case id <= st.Meta().LastRollout:
			err = notFound("ROLLOUT_NOT_FOUND", "rollout %d has ended and is no longer kept", id)
		default:
			err = notFound("ROLLOUT_NOT_FOUND", "there is no rollout %d: correct the ID", id)
		}
	})
	return m, err
}

// rolloutGroups returns as many groups as one answer has, from a number on.
func (s *Server) rolloutGroups(id state.RolloutID, from uint32) []*rotav1.RolloutGroup {
	var rows []*state.RolloutGroup // they never change
	members := 0
	s.Machine.View(func(st *state.State) {
		st.RolloutGroups(id, min(from, state.RolloutGroupsMax-1), func(g *state.RolloutGroup) bool {
			if members += len(g.Members); g.Key.Index() < from || len(rows) > 0 && members > answeredMembersMax {
				return g.Key.Index() < from
			}
			rows = append(rows, g)
			return len(rows) < answeredGroupsMax
		})
	})
	groups := make([]*rotav1.RolloutGroup, 0, len(rows))
	for _, g := range rows {
		m := &rotav1.RolloutGroup{Index: g.Key.Index(), Complete: g.Complete, Step: g.Step}
		for i := range g.Members {
			x := &g.Members[i]
			m.Members = append(m.Members, &rotav1.RolloutMember{TrajectoryId: uint64(x.Trajectory), Version: x.Version, State: rotav1.RolloutMemberState(x.State)})
		}
		groups = append(groups, m)
	}
	return groups
}

// ListRollouts returns a page of rollouts.
func (s *Server) ListRollouts(ctx context.Context, req *rotav1.ListRolloutsRequest) (*rotav1.ListRolloutsResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 11, hashText(orDefault(req.Namespace)), hashText(req.Policy), digit(req.IncludeEnded))
	if err := firstOf(checkName("namespace", req.Namespace), checkText("policy", req.Policy, state.PolicyNameBytesMax), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	namespace, err := namespaceID(st, req.Namespace)
	if err != nil {
		return nil, err
	}
	resp := &rotav1.ListRolloutsResponse{}
	c := &collector{page: p}
	st.Rollouts(state.RolloutID(p.after), func(r *state.Rollout) bool {
		return c.visit(uint64(r.ID), func() proto.Message {
			if r.Namespace != namespace || req.Policy != "" && r.Policy != req.Policy || r.State == state.RolloutClosed && !req.IncludeEnded {
				return nil
			}
			return appendRow(&resp.Rollouts, rolloutMessage(st, r))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

func rolloutMessage(st *state.State, r *state.Rollout) *rotav1.Rollout {
	wall, k := wallOf(st), &r.Counts
	m := &rotav1.Rollout{
		Id: uint64(r.ID), State: rotav1.RolloutState(r.State), CreateTime: wall.timestamp(r.CreatedAt), EndTime: wall.timestamp(r.EndedAt),
		Spec: &rotav1.RolloutSpec{
			Name: r.Name, Policy: r.Policy, Groups: r.Groups, SamplesPerGroup: r.Samples, Redundant: r.Redundant, Staleness: r.Staleness,
		},
		Counts: &rotav1.RolloutCounts{
			Opened: k.Opened, Running: k.Running, Sampled: k.Sampled, Redundant: k.Redundant, Stale: k.Stale, Failed: k.Failed,
			CompleteGroups: k.Complete, DeliveredGroups: k.Delivered, DroppedGroups: r.Dropped(),
		},
	}
	if n := st.Namespace(r.Namespace); n != nil {
		m.Namespace = n.Name
	}
	return m
}

// membership is the place in a rollout that a trajectory is opened for, in the log.
func membership(m *rotav1.RolloutMembership) *logv1.RolloutMembership {
	if m == nil {
		return nil
	}
	return &logv1.RolloutMembership{RolloutId: m.RolloutId, Group: m.Group}
}
