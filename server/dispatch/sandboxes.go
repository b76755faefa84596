package dispatch

import (
	"fmt"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// newSandboxes returns the trajectories with a container that are open on a node and that the agent was
// not told of on this stream. Those that are paused are told later.
func (s *stream) newSandboxes(st *state.State, n *state.Node) (found []*state.Trajectory) {
	var told map[state.TrajectoryID]struct{}
	st.NodeTrajectories(n.ID, func(t *state.Trajectory) bool {
		if !t.Container || t.State != state.TrajectoryOpen {
			return true
		}
		if _, known := s.sandboxes[t.ID]; !known {
			if t.Paused() {
				return true
			}
			found = append(found, t)
		}
		if told == nil {
			told = map[state.TrajectoryID]struct{}{}
		}
		told[t.ID] = struct{}{}
		return true
	})
	s.sandboxes = told
	return found
}

// desiredSandboxes makes trajectories into what the agent is told of their sandboxes.
func desiredSandboxes(list []*state.Trajectory) (out []*rotav1.DesiredSandbox, err error) {
	for _, t := range list {
		c, err := containerOf(t.ID, t.Spec)
		if err != nil {
			return nil, err
		}
		out = append(out, &rotav1.DesiredSandbox{TrajectoryId: uint64(t.ID), Container: c, SnapshotId: uint64(t.Snapshot)})
	}
	return out, nil
}

// containerOf is the sandbox that the commands of a trajectory run in, by its encoded specification;
// nil: none.
func containerOf(trajectory state.TrajectoryID, spec string) (*rotav1.Container, error) {
	if spec == "" {
		return nil, nil
	}
	t := new(rotav1.TrajectorySpec)
	if err := t.UnmarshalVT([]byte(spec)); err != nil {
		return nil, fmt.Errorf("decode the specification of trajectory %d: %w", trajectory, err)
	}
	return t.Container, nil
}
