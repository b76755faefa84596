package rpc

import (
	"context"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// OpenTrajectory opens a trajectory.
func (s *Server) OpenTrajectory(ctx context.Context, req *rotav1.OpenTrajectoryRequest) (*rotav1.OpenTrajectoryResponse, error) {
	if err := checkOpen(req).err(); err != nil {
		return nil, err
	}
	asked, err := askedOf(req)
	if err != nil {
		return nil, err
	}
	req, err = s.fromSnapshot(ctx, req)
	if err != nil {
		return nil, err
	}
	spec, err := encodeTrajectorySpec(req.Spec)
	if err != nil {
		return nil, err
	}
	labels := labelsCommand(req.Labels)
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
		Request:        asked,
		Namespace:      orDefault(req.Namespace),
		Name:           req.Name,
		Pool:           orDefault(req.Pool),
		MemoryBytes:    req.MemoryBytes,
		IdleTimeoutNs:  int64(req.IdleTimeout.AsDuration()),
		SpreadGroup:    req.SpreadGroup,
		SpreadLabel:    req.SpreadLabel,
		Objective:      uint32(objectiveOf(req.Objective)),
		Spec:           spec,
		Generation:     generationCommand(req.Generation),
		Rollout:        membership(req.Rollout),
		TimeoutNs:      int64(req.Timeout.AsDuration()),
		Labels:         labels,
		Container:      req.Spec.GetContainer() != nil,
		SnapshotId:     req.SnapshotId,
		PauseAtTimeout: req.PauseAtTimeout,
	}}})
	if err != nil {
		return nil, err
	}
	return &rotav1.OpenTrajectoryResponse{Trajectory: s.changedTrajectory(result.FirstId), Replayed: result.Replayed}, nil
}

// askedOf identifies what a client asks for. What a snapshot adds to that is left out, so that a
// repetition is the same when the snapshot is gone.
func askedOf(req *rotav1.OpenTrajectoryRequest) (*logv1.Request, error) {
	spec, err := encodeTrajectorySpec(req.Spec)
	if err != nil {
		return nil, err
	}
	return request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) {
		for _, text := range []string{orDefault(req.Namespace), req.Name, orDefault(req.Pool)} {
			digestText(d, text)
		}
		digestNumber(d, req.MemoryBytes)
		digestNumber(d, uint64(req.IdleTimeout.AsDuration()))
		digestText(d, req.SpreadGroup)
		digestText(d, req.SpreadLabel)
		if objective := objectiveOf(req.Objective); objective != state.ObjectiveMean {
			digestNumber(d, uint64(objective))
		}
		if len(spec) > 0 {
			digestText(d, string(spec))
		}
		digestLabels(d, labelsCommand(req.Labels))
		digestGeneration(d, req.Generation)
		if r := req.Rollout; r != nil {
			digestNumber(d, r.RolloutId)
			digestNumber(d, uint64(r.Group))
		}
		if timeout := req.Timeout.AsDuration(); timeout > 0 {
			digestText(d, "timeout")
			digestNumber(d, uint64(timeout))
		}
		if req.PauseAtTimeout {
			digestText(d, "pause")
		}
		if req.SnapshotId != 0 {
			digestText(d, "snapshot")
			digestNumber(d, req.SnapshotId)
		}
	}), nil
}

// encodeTrajectorySpec encodes equal specifications equally, and one that says nothing as none.
func encodeTrajectorySpec(spec *rotav1.TrajectorySpec) ([]byte, error) {
	if spec == nil {
		return nil, nil
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(spec)
}

// objectiveOf returns the objective that a client means.
func objectiveOf(o rotav1.Objective) state.Objective {
	return state.Objective(max(o, rotav1.Objective_OBJECTIVE_MEAN) - rotav1.Objective_OBJECTIVE_MEAN)
}

// CloseTrajectory ends a trajectory and its actions.
func (s *Server) CloseTrajectory(ctx context.Context, req *rotav1.CloseTrajectoryRequest) (*rotav1.CloseTrajectoryResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CloseTrajectory{
		CloseTrajectory: &logv1.CloseTrajectory{Id: req.Id},
	}})
	if err != nil {
		return nil, err
	}
	return &rotav1.CloseTrajectoryResponse{Trajectory: s.changedTrajectory(req.Id)}, nil
}

// ExtendTrajectory sets when a trajectory closes by itself.
func (s *Server) ExtendTrajectory(ctx context.Context, req *rotav1.ExtendTrajectoryRequest) (*rotav1.ExtendTrajectoryResponse, error) {
	if err := firstOf(requireID("id", req.Id), checkDuration("timeout", req.Timeout)).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_ExtendTrajectory{
		ExtendTrajectory: &logv1.ExtendTrajectory{Id: req.Id, TimeoutNs: int64(req.Timeout.AsDuration()), OnlyLater: req.OnlyLater},
	}})
	if err != nil {
		return nil, err
	}
	return &rotav1.ExtendTrajectoryResponse{Trajectory: s.changedTrajectory(req.Id)}, nil
}

// PauseTrajectory freezes what a trajectory runs, and has what it queues wait.
func (s *Server) PauseTrajectory(ctx context.Context, req *rotav1.PauseTrajectoryRequest) (*rotav1.PauseTrajectoryResponse, error) {
	changed, err := s.pause(ctx, req.Id, false)
	if err != nil {
		return nil, err
	}
	return &rotav1.PauseTrajectoryResponse{Trajectory: s.changedTrajectory(req.Id), Changed: changed}, nil
}

// ResumeTrajectory lets a paused trajectory go on.
func (s *Server) ResumeTrajectory(ctx context.Context, req *rotav1.ResumeTrajectoryRequest) (*rotav1.ResumeTrajectoryResponse, error) {
	changed, err := s.pause(ctx, req.Id, true)
	if err != nil {
		return nil, err
	}
	return &rotav1.ResumeTrajectoryResponse{Trajectory: s.changedTrajectory(req.Id), Changed: changed}, nil
}

func (s *Server) pause(ctx context.Context, id uint64, resume bool) (changed bool, err error) {
	if err := requireID("id", id).err(); err != nil {
		return false, err
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_PauseTrajectory{
		PauseTrajectory: &logv1.PauseTrajectory{Id: id, Resume: resume},
	}})
	return result.GetCount() > 0, err
}

// pauseOf says how far the pause of a trajectory has come, or its end.
func pauseOf(st *state.State, t *state.Trajectory) rotav1.PauseState {
	if t.State >= state.TrajectoryClosing || t.Pauses == 0 {
		return rotav1.PauseState_PAUSE_STATE_UNSPECIFIED
	}
	most := state.IceNone
	wanted := false
	st.VisitLive(t.ID, func(a *state.Action) bool {
		if at := st.Attempt(a.Node, a.ID); at != nil && !at.Stop {
			most = max(most, at.Ice)
			wanted = wanted || at.Ice == state.IceWanted
		}
		return true
	})
	switch {
	case t.Paused() && wanted:
		return rotav1.PauseState_PAUSE_STATE_PAUSING
	case t.Paused():
		return rotav1.PauseState_PAUSE_STATE_PAUSED
	case most >= state.IceThawing:
		return rotav1.PauseState_PAUSE_STATE_RESUMING
	}
	return rotav1.PauseState_PAUSE_STATE_UNSPECIFIED
}

// changedTrajectory returns a trajectory that a change was committed for. It may
// have ended and been dropped since, which does not make the change a failure.
func (s *Server) changedTrajectory(id uint64) *rotav1.Trajectory {
	t, err := s.trajectory(state.TrajectoryID(id))
	if err != nil {
		return &rotav1.Trajectory{Id: id, State: rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSED}
	}
	return t
}

// GetTrajectory returns one trajectory.
func (s *Server) GetTrajectory(ctx context.Context, req *rotav1.GetTrajectoryRequest) (*rotav1.GetTrajectoryResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	t, err := s.trajectory(state.TrajectoryID(req.Id))
	return &rotav1.GetTrajectoryResponse{Trajectory: t}, err
}

func (s *Server) trajectory(id state.TrajectoryID) (m *rotav1.Trajectory, err error) {
	s.Machine.View(func(st *state.State) {
		if t := st.Trajectory(id); t != nil {
			m = trajectoryMessage(st, t)
		} else {
			err = trajectoryNotFound(st, id)
		}
	})
	return m, err
}

func trajectoryNotFound(st *state.State, id state.TrajectoryID) error {
	if id <= st.Meta().LastTrajectory {
		return notFound("TRAJECTORY_NOT_FOUND", "trajectory %d has ended and is no longer kept", id)
	}
	return notFound("TRAJECTORY_NOT_FOUND", "there is no trajectory %d: correct the ID", id)
}
