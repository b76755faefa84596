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
	spec, err := encodeTrajectorySpec(req.Spec)
	if err != nil {
		return nil, err
	}
	labels := labelsCommand(req.Labels)
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
		Request: request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) {
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
			digestLabels(d, labels)
			digestGeneration(d, req.Generation)
			if r := req.Rollout; r != nil {
				digestNumber(d, r.RolloutId)
				digestNumber(d, uint64(r.Group))
			}
			if timeout := req.Timeout.AsDuration(); timeout > 0 {
				digestText(d, "timeout")
				digestNumber(d, uint64(timeout))
			}
		}),
		Namespace:     orDefault(req.Namespace),
		Name:          req.Name,
		Pool:          orDefault(req.Pool),
		MemoryBytes:   req.MemoryBytes,
		IdleTimeoutNs: int64(req.IdleTimeout.AsDuration()),
		SpreadGroup:   req.SpreadGroup,
		SpreadLabel:   req.SpreadLabel,
		Objective:     uint32(objectiveOf(req.Objective)),
		Spec:          spec,
		Generation:    generationCommand(req.Generation),
		Rollout:       membership(req.Rollout),
		TimeoutNs:     int64(req.Timeout.AsDuration()),
		Labels:        labels,
		Container:     req.Spec.GetContainer() != nil,
	}}})
	if err != nil {
		return nil, err
	}
	return &rotav1.OpenTrajectoryResponse{Trajectory: s.changedTrajectory(result.FirstId), Replayed: result.Replayed}, nil
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
