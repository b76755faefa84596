package rpc

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// clocksDiffer is by how much the clocks of leaders may differ: a later action may then show an
// earlier time.
const clocksDiffer = time.Hour

// actionFilter says which actions a list has.
type actionFilter struct {
	st         *state.State
	wall       wallClock
	namespace  state.NamespaceID // 0: all
	states     uint32            // a bit for each
	trajectory state.TrajectoryID
	node       state.NodeID // 0: any
	class      string
	name       string
	since      time.Time
	labels     map[string]string
	newest     bool
	// mayRead says of which namespaces the caller may read actions.
	mayRead func(state.NamespaceID) bool
}

// ListActions returns a page of actions.
func (s *Server) ListActions(ctx context.Context, req *rotav1.ListActionsRequest) (*rotav1.ListActionsResponse, error) {
	states, v := stateSet(req.States)
	since := time.Time{}
	query := []uint64{1, hashText(orDefault(req.Namespace)), uint64(states), req.TrajectoryId}
	if req.SubmittedSince != nil {
		since = req.SubmittedSince.AsTime()
	}
	if req.NewestFirst || req.Name != "" || req.Class != "" || req.Node != "" || !since.IsZero() {
		newest := uint64(0)
		if req.NewestFirst {
			newest = 1
		}
		query = append(query, newest, hashText(req.Name), hashText(req.Class), hashText(req.Node), uint64(since.UnixNano()))
	}
	query = append(query, queryLabels(req.Labels)...)
	p, tokenWrong := newPage(req.PageSize, req.PageToken, query...)
	if err := firstOf(checkActionFilter(req), v, tokenWrong).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	f := actionFilter{st: st, wall: wallOf(st), states: states, trajectory: state.TrajectoryID(req.TrajectoryId),
		class: req.Class, name: req.Name, since: since, labels: req.Labels, newest: req.NewestFirst, mayRead: readable(ctx, st, "action")}
	var err error
	if f.namespace, f.node, err = listedAt(st, req.Namespace, req.Node); err != nil {
		return nil, err
	}
	return f.page(&collector{page: p})
}

func checkActionFilter(req *rotav1.ListActionsRequest) *violation {
	namespace := checkName("namespace", req.Namespace)
	if req.Namespace == allNamespaces {
		namespace = nil
	}
	if err := req.SubmittedSince.CheckValid(); req.SubmittedSince != nil && err != nil {
		return wrong("submitted_since", "is no time: %v", err)
	}
	return firstOf(namespace, checkName("node", req.Node), checkText("class", req.Class, nameBytesMax), checkText("name", req.Name, nameBytesMax),
		checkWorkLabels("labels", req.Labels))
}

// listedAt looks up the namespace and the node that a list is about; 0: any.
func listedAt(st *state.State, namespace, node string) (ns state.NamespaceID, on state.NodeID, err error) {
	if namespace != allNamespaces {
		if ns, err = namespaceID(st, namespace); err != nil {
			return 0, 0, err
		}
	}
	if node != "" {
		n := st.NodeByName(node)
		if n == nil {
			return 0, 0, notFound("NODE_NOT_FOUND", "there is no node %q: correct the name", node)
		}
		on = n.ID
	}
	return ns, on, nil
}

// page collects a page.
func (f *actionFilter) page(c *collector) (*rotav1.ListActionsResponse, error) {
	resp := &rotav1.ListActionsResponse{Revision: f.st.Meta().Revision}
	var failed error
	f.scan(c.page.after, func(a *state.Action) bool {
		if f.newest && f.submittedBefore(a, f.since.Add(-clocksDiffer)) {
			return false // and so were all that follow
		}
		return c.visit(uint64(a.ID), func() proto.Message {
			if !f.matches(a) {
				return nil
			}
			m, err := readAction(f.st, a).message()
			if err != nil {
				failed = err
				return nil
			}
			if f.name != "" && m.GetSpec().GetName() != f.name {
				return nil
			}
			return appendRow(&resp.Actions, m)
		}) && failed == nil
	})
	resp.NextPageToken = c.nextToken()
	return resp, failed
}

// scan visits the actions that may match in the order of the list, behind one of them. It uses the
// index that leaves out the most.
func (f *actionFilter) scan(after uint64, visit func(*state.Action) bool) {
	st, id := f.st, state.ActionID(after)
	if f.newest && id == 0 {
		id = math.MaxUint64
	}
	switch {
	case f.trajectory != 0 && f.newest:
		st.TrajectoryActionsDown(f.trajectory, id, visit)
	case f.trajectory != 0:
		st.TrajectoryActions(f.trajectory, id, visit)
	case f.states == 1<<state.ActionQueued && f.newest:
		st.QueuedActionsDown(id, visit)
	case f.states == 1<<state.ActionQueued:
		st.QueuedActions(id, visit)
	case f.states == 1<<state.ActionRunning && f.node != 0 && f.newest:
		st.NodeActionsDown(f.node, id, visit)
	case f.states == 1<<state.ActionRunning && f.node != 0:
		st.NodeActions(f.node, id, visit)
	case f.newest:
		st.ActionsDown(id, visit)
	default:
		st.Actions(id, visit)
	}
}

// submittedBefore: a list since a time is asked for, and the action was submitted before another.
func (f *actionFilter) submittedBefore(a *state.Action, at time.Time) bool {
	return !f.since.IsZero() && f.wall.timestamp(a.SubmittedAt).AsTime().Before(at)
}

// matches says whether an action belongs to the list, but for its name, which is in its spec.
func (f *actionFilter) matches(a *state.Action) bool {
	switch {
	case f.namespace != 0 && a.Namespace != f.namespace, f.states&(1<<a.State) == 0,
		f.node != 0 && a.Node != f.node, f.submittedBefore(a, f.since), !hasLabels(a.Labels, f.labels), !f.mayRead(a.Namespace):
		return false
	case f.class != "":
		c := f.st.Class(a.Class)
		return c != nil && c.Name == f.class
	}
	return true
}

// stateSet makes states into a set of bits; none are all.
func stateSet(states []rotav1.ActionState) (set uint32, v *violation) {
	for _, st := range states {
		if st < rotav1.ActionState_ACTION_STATE_QUEUED || st > rotav1.ActionState_ACTION_STATE_EXPIRED {
			return 0, wrong("states", "has %d, which is not a state", st)
		}
		set |= 1 << st
	}
	if set == 0 {
		set = ^uint32(0)
	}
	return set, nil
}
