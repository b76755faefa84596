package rpc

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

const (
	// slotsMax and reservationsMax bound one look at the ledger.
	slotsMax        = 86_400
	reservationsMax = 100_000
	// slotsDefault is how far it looks where nothing has a period.
	slotsDefault = 60
)

// CreateNodeGroup makes a group that deployments take turns on.
func (s *Server) CreateNodeGroup(ctx context.Context, req *rotav1.CreateNodeGroupRequest) (*rotav1.CreateNodeGroupResponse, error) {
	if err := firstOf(requireName("name", req.Name), checkMembers(req.Nodes, req.Members, req.Selector), checkName("hook_pool", req.HookPool)).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{
		Name: req.Name, Nodes: int64(req.Nodes), HookPool: orDefault(req.HookPool),
		Members: membersOf(req.Members), Selector: selectorOf(req.Selector),
	}}})
	if err != nil {
		return nil, err
	}
	group := &rotav1.NodeGroup{Name: req.Name, Nodes: req.Nodes} // should it be deleted by now
	s.Machine.View(func(st *state.State) {
		if g := st.NodeGroupByName(req.Name); g != nil {
			group = groupMessage(st, g)
		}
	})
	return &rotav1.CreateNodeGroupResponse{Group: group}, nil
}

// ListNodeGroups returns all groups.
func (s *Server) ListNodeGroups(ctx context.Context, req *rotav1.ListNodeGroupsRequest) (*rotav1.ListNodeGroupsResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.ListNodeGroupsResponse{}
	st := s.Machine.Fork()
	st.NodeGroups(func(g *state.NodeGroup) bool {
		resp.Groups = append(resp.Groups, groupMessage(st, g))
		return true
	})
	return resp, nil
}

// DeleteNodeGroup forgets a group that no job is on.
func (s *Server) DeleteNodeGroup(ctx context.Context, req *rotav1.DeleteNodeGroupRequest) (*rotav1.DeleteNodeGroupResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_DeleteNodeGroup{DeleteNodeGroup: &logv1.DeleteNodeGroup{Name: req.Name}}})
	return &rotav1.DeleteNodeGroupResponse{}, err
}

// ResumeLedger goes on after failed decisions.
func (s *Server) ResumeLedger(ctx context.Context, _ *rotav1.ResumeLedgerRequest) (*rotav1.ResumeLedgerResponse, error) {
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ResumeLedger{ResumeLedger: &logv1.ResumeLedger{}}})
	return &rotav1.ResumeLedgerResponse{}, err
}

// GetLedger returns the groups with what is reserved of them.
func (s *Server) GetLedger(ctx context.Context, req *rotav1.GetLedgerRequest) (*rotav1.GetLedgerResponse, error) {
	if err := firstOf(checkName("group", req.Group), checkSlots(req.Slots)).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	if req.Group != "" && st.NodeGroupByName(req.Group) == nil {
		return nil, notFound("NODE_GROUP_NOT_FOUND", "there is no node group %q: ListNodeGroups has their names", req.Group)
	}
	meta := st.Meta()
	now := max(s.LogTime(), meta.Now)
	slot := max(1, meta.Settings.LedgerSlotNS)
	resp := &rotav1.GetLedgerResponse{
		Slot: duration(slot), NowSlot: now / slot, LogTime: timestamp(now), Slots: req.Slots,
		Policy: rotav1.PlacementPolicy(meta.Settings.LedgerPolicy), Halted: meta.PlacementHalted,
	}
	if resp.Slots == 0 {
		resp.Slots = defaultSlots(st)
	}
	v := ledgerView{s: s, st: st, resp: resp, from: resp.NowSlot, names: map[state.JobID]string{}}
	st.NodeGroups(func(g *state.NodeGroup) bool {
		if req.Group == "" || g.Name == req.Group {
			v.add(g)
		}
		return v.left() >= 0
	})
	if v.left() < 0 {
		return nil, failed(connect.CodeInvalidArgument, "TOO_MANY_RESERVATIONS",
			"there are more than %d reservations in %d slots: ask for fewer slots, or for one group", reservationsMax, resp.Slots)
	}
	return resp, nil
}

// defaultSlots is the longest period: then every reservation is seen at least once.
func defaultSlots(st *state.State) uint32 {
	longest := int64(slotsDefault)
	st.NodeGroups(func(g *state.NodeGroup) bool {
		longest = max(longest, g.Period)
		return true
	})
	return uint32(min(longest, slotsMax))
}

// ledgerView fills in the groups of a response.
type ledgerView struct {
	s     *Server
	st    *state.State
	resp  *rotav1.GetLedgerResponse
	from  int64
	names map[state.JobID]string
	count int
}

// left is how many reservations the answer still has room for.
func (v *ledgerView) left() int { return reservationsMax - v.count }

func (v *ledgerView) add(g *state.NodeGroup) {
	m := &rotav1.LedgerGroup{Group: groupMessage(v.st, g)}
	v.s.ReservedIntervals(v.st, g.ID, v.from, v.from+int64(v.resp.Slots), func(job state.JobID, start, end, nodes int64) {
		if v.count++; v.left() < 0 {
			return
		}
		name, known := v.names[job]
		if !known {
			name = jobPath(v.st, job)
			v.names[job] = name
		}
		m.Intervals = append(m.Intervals, &rotav1.ReservedInterval{
			JobId: uint64(job), Job: name, Start: start, End: end, Nodes: uint32(nodes),
		})
	})
	v.resp.Groups = append(v.resp.Groups, m)
}

func groupMessage(st *state.State, g *state.NodeGroup) *rotav1.NodeGroup {
	m := &rotav1.NodeGroup{
		Name: g.Name, Nodes: uint32(g.Nodes), Period: duration(g.Period * st.Meta().Settings.LedgerSlotNS),
		TurnId: uint64(g.Turn), Resident: deploymentPath(st, g.Resident), Halted: g.Halted,
		HookPool: g.HookPool, Awake: deploymentPath(st, g.Awake), ContextSwitch: g.ContextSwitch != nil,
	}
	if t := st.Turn(g.Turn); t != nil {
		m.Token, m.Holder = t.Token, deploymentPath(st, t.Deployment)
	}
	describeMembers(st, m, g)
	st.GroupJobs(g.ID, func(j *state.Job) bool {
		if j.Backfill {
			m.BackfillJobs++
		} else {
			m.Jobs++
		}
		return true
	})
	return m
}

// jobPath says "namespace/job"; empty for one that is gone.
func jobPath(st *state.State, id state.JobID) string {
	j := st.Job(id)
	if j == nil {
		return ""
	}
	return namespaceName(st, j.Namespace) + "/" + j.Name
}

// deploymentPath says "namespace/job/deployment"; empty for one that is gone.
func deploymentPath(st *state.State, id state.DeploymentID) string {
	j, d := st.Deployment(id)
	if d == nil {
		return ""
	}
	return jobPath(st, j.ID) + "/" + d.Name
}

func namespaceName(st *state.State, id state.NamespaceID) string {
	if n := st.Namespace(id); n != nil {
		return n.Name
	}
	return ""
}

// cycleMessage turns slots into time.
func cycleMessage(c state.Cycle, slotNS int64) *rotav1.Cycle {
	if c.Period == 0 {
		return nil
	}
	m := &rotav1.Cycle{Period: duration(c.Period * slotNS)}
	for _, s := range c.Segments {
		m.Segments = append(m.Segments, &rotav1.Segment{
			Offset: duration(s.Offset * slotNS), Length: duration(s.Length * slotNS), Nodes: uint32(s.Nodes),
		})
	}
	return m
}

// leaseSettings are how long leases last, and how long before holders stop.
func leaseSettings(st *state.State) (lease, margin *durationpb.Duration) {
	settings := st.Meta().Settings
	return duration(settings.LeaseNS), duration(settings.LeaseMarginNS)
}
