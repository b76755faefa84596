package rpc

import (
	"context"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// trajectoryFilter says which trajectories a list has.
type trajectoryFilter struct {
	st        *state.State
	wall      wallClock
	namespace state.NamespaceID // 0: all
	states    uint32            // a bit for each
	node      state.NodeID      // 0: any
	prefix    string
	labels    map[string]string
	since     time.Time
	newest    bool
	// mayRead says of which namespaces the caller may read trajectories.
	mayRead func(state.NamespaceID) bool
}

// ListTrajectories returns a page of trajectories.
func (s *Server) ListTrajectories(ctx context.Context, req *rotav1.ListTrajectoriesRequest) (*rotav1.ListTrajectoriesResponse, error) {
	states, v := trajectoryStates(req)
	p, tokenWrong := newPage(req.PageSize, req.PageToken, trajectoryQuery(req, states)...)
	if err := firstOf(checkTrajectoryFilter(req), v, tokenWrong).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	f := trajectoryFilter{st: st, wall: wallOf(st), states: states, prefix: req.NamePrefix, labels: req.Labels, newest: req.NewestFirst,
		mayRead: readable(ctx, st, "trajectory")}
	if req.OpenedSince != nil {
		f.since = req.OpenedSince.AsTime()
	}
	var err error
	if f.namespace, f.node, err = listedAt(st, req.Namespace, req.Node); err != nil {
		return nil, err
	}
	return f.page(&collector{page: p}), nil
}

// trajectoryQuery is what a page token is good for. The token of a list with none of the later
// filters is that of servers which do not know them.
func trajectoryQuery(req *rotav1.ListTrajectoriesRequest, states uint32) []uint64 {
	flag := func(set bool) uint64 {
		if set {
			return 1
		}
		return 0
	}
	query := []uint64{2, hashText(orDefault(req.Namespace)), flag(req.IncludeEnded)}
	if req.NewestFirst || req.NamePrefix != "" || req.Node != "" || len(req.States) > 0 || req.OpenedSince != nil {
		query = append(query, flag(req.NewestFirst), hashText(req.NamePrefix), hashText(req.Node), uint64(states),
			uint64(req.OpenedSince.AsTime().UnixNano()))
	}
	return append(query, queryLabels(req.Labels)...)
}

func checkTrajectoryFilter(req *rotav1.ListTrajectoriesRequest) *violation {
	namespace := checkName("namespace", req.Namespace)
	if req.Namespace == allNamespaces {
		namespace = nil
	}
	if err := req.OpenedSince.CheckValid(); req.OpenedSince != nil && err != nil {
		return wrong("opened_since", "is no time: %v", err)
	}
	return firstOf(namespace, checkName("node", req.Node), checkText("name_prefix", req.NamePrefix, nameBytesMax),
		checkWorkLabels("labels", req.Labels))
}

// trajectoryStates makes the states of a list into a set of bits.
func trajectoryStates(req *rotav1.ListTrajectoriesRequest) (set uint32, v *violation) {
	for _, st := range req.States {
		if st < rotav1.TrajectoryState_TRAJECTORY_STATE_PENDING || st > rotav1.TrajectoryState_TRAJECTORY_STATE_LOST {
			return 0, wrong("states", "has %d, which is not a state", st)
		}
		set |= 1 << st
	}
	switch {
	case set != 0:
		return set, nil
	case req.IncludeEnded:
		return ^uint32(0), nil
	}
	return 1<<state.TrajectoryClosed - 1, nil
}

// page collects a page.
func (f *trajectoryFilter) page(c *collector) *rotav1.ListTrajectoriesResponse {
	resp := &rotav1.ListTrajectoriesResponse{}
	f.scan(c.page.after, func(t *state.Trajectory) bool {
		if f.newest && f.openedBefore(t, f.since.Add(-clocksDiffer)) {
			return false // and so were all that follow
		}
		return c.visit(uint64(t.ID), func() proto.Message {
			if !f.matches(t) {
				return nil
			}
			return appendRow(&resp.Trajectories, trajectoryMessage(f.st, t))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp
}

// scan visits the trajectories in the order of the list, behind one of them.
func (f *trajectoryFilter) scan(after uint64, visit func(*state.Trajectory) bool) {
	switch {
	case !f.newest:
		f.st.Trajectories(state.TrajectoryID(after), visit)
	case after == 0:
		f.st.TrajectoriesDown(math.MaxUint64, visit)
	default:
		f.st.TrajectoriesDown(state.TrajectoryID(after), visit)
	}
}

// openedBefore: a list since a time is asked for, and the trajectory was opened before another.
func (f *trajectoryFilter) openedBefore(t *state.Trajectory, at time.Time) bool {
	return !f.since.IsZero() && f.wall.timestamp(t.OpenedAt).AsTime().Before(at)
}

func (f *trajectoryFilter) matches(t *state.Trajectory) bool {
	return (f.namespace == 0 || t.Namespace == f.namespace) && f.states&(1<<t.State) != 0 &&
		(f.node == 0 || t.Node == f.node) && strings.HasPrefix(t.Name, f.prefix) && !f.openedBefore(t, f.since) &&
		hasLabels(t.Labels, f.labels) && f.mayRead(t.Namespace)
}
