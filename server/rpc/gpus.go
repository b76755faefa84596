package rpc

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// ListGpus returns a page of the nodes that have GPUs, with the use of each GPU.
func (s *Server) ListGpus(ctx context.Context, req *rotav1.ListGpusRequest) (*rotav1.ListGpusResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 10, hashText(req.Pool))
	if err := firstOf(checkName("pool", req.Pool), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	pool := st.PoolByName(req.Pool)
	if req.Pool != "" && pool == nil {
		return nil, notFound("POOL_NOT_FOUND", "there is no pool %q: ListPools has their names", req.Pool)
	}
	uses := gpuUses{server: s, st: st, next: map[state.GroupID]nextReservation{}}
	resp := &rotav1.ListGpusResponse{}
	c := &collector{page: p}
	st.Nodes(state.NodeID(p.after), func(n *state.Node) bool {
		return c.visit(uint64(n.ID), func() proto.Message {
			if n.GPUs.Class == 0 || pool != nil && n.Pool != pool.ID {
				return nil
			}
			return appendRow(&resp.Nodes, uses.node(n))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

// nextReservation is the reservation of a group that is under way, or else the one that begins
// next; no job if there is none.
type nextReservation struct {
	job string
	at  int64 // log time
}

// gpuUses finds out what the GPUs of nodes are used for.
type gpuUses struct {
	server *Server
	st     *state.State
	next   map[state.GroupID]nextReservation // as far as looked up
}

func (u *gpuUses) node(n *state.Node) *rotav1.NodeGpus {
	m := &rotav1.NodeGpus{
		Node: n.Name, Pool: u.st.Pool(n.Pool).Name, Usable: n.Usable(),
		Inventory: &rotav1.GpuInventory{Class: u.st.GPUClass(n.GPUs.Class).Name, Count: n.GPUs.Count, MemoryBytes: n.GPUs.Memory},
	}
	for k := range n.GPUs.Count {
		m.Gpus = append(m.Gpus, &rotav1.Gpu{Number: k})
	}
	each := func(set state.GPUSet, do func(g *rotav1.Gpu)) {
		for _, k := range (set & state.AllGPUs(n.GPUs.Count)).Slice() {
			do(m.Gpus[k])
		}
	}
	for _, r := range u.st.ModelsOn(n.ID) {
		each(r.Chunk.GPUs(), func(g *rotav1.Gpu) { g.Models = append(g.Models, r.Model) })
	}
	u.st.Attempts(n.ID, func(t *state.Attempt) bool {
		each(t.Chunk.GPUs(), func(g *rotav1.Gpu) {
			g.Holder = &rotav1.ResidencyPin{Holder: &rotav1.ResidencyPin_ActionId{ActionId: uint64(t.Action)}, Uses: true}
		})
		return true
	})
	u.st.MembersOn(n, func(g *state.NodeGroup, member *state.Member, set state.GPUSet) {
		each(set, func(m *rotav1.Gpu) { u.member(m, g, member) })
	})
	for _, g := range m.Gpus {
		if g.Holder == nil {
			g.IdleReason = u.idleReason(n, g)
		}
	}
	return m
}

// member notes what a group has of a GPU.
func (u *gpuUses) member(m *rotav1.Gpu, g *state.NodeGroup, member *state.Member) {
	m.NodeGroup, m.Lost = g.Name, lossText(u.st, member)
	if member.Withheld {
		m.Holder = turnPin(u.st, g)
		m.Holder.Uses = true
	}
	if next := u.reservation(g); next.job != "" {
		m.NextJob, m.NextTime = next.job, wallOf(u.st).timestamp(next.at)
	}
}

// reservation looks up the next reservation of a group within two of its periods: those of all
// its jobs repeat in one.
func (u *gpuUses) reservation(g *state.NodeGroup) nextReservation {
	next, known := u.next[g.ID]
	if known {
		return next
	}
	meta := u.st.Meta()
	slot := max(1, meta.Settings.LedgerSlotNS)
	from := max(u.server.LogTime(), meta.Now) / slot
	u.server.ReservedIntervals(u.st, g.ID, from, from+2*max(1, min(g.Period, slotsMax)), func(job state.JobID, start, _, _ int64) {
		if next.job == "" || start*slot < next.at {
			next = nextReservation{job: jobPath(u.st, job), at: start * slot}
		}
	})
	u.next[g.ID] = next
	return next
}

// idleReason says why not every action may have a GPU that is free; empty if any may.
func (u *gpuUses) idleReason(n *state.Node, m *rotav1.Gpu) string {
	switch g := u.st.NodeGroupByName(m.NodeGroup); {
	case n.State != state.NodeUp:
		return "the node is down"
	case n.Draining:
		return "the node is draining"
	case n.OutOfUse()&(state.Chunk{First: m.Number, Units: 1}).GPUs() != 0:
		return n.OutOfUseText((state.Chunk{First: m.Number, Units: 1}).GPUs())
	case n.ReservedFor != 0:
		return fmt.Sprintf("the node is reserved for action %d", n.ReservedFor)
	case g == nil:
		return ""
	default:
		return u.groupIdle(g)
	}
}

// groupIdle says why a member of a group is idle that no turn has.
func (u *gpuUses) groupIdle(g *state.NodeGroup) string {
	now := max(u.server.LogTime(), u.st.Meta().Now)
	switch m := &g.Members; {
	case g.Halted != "":
		return fmt.Sprintf("node group %s is halted: %s", g.Name, g.Halted)
	case g.Awake != 0:
		return fmt.Sprintf("deployment %s is awake there", deploymentPath(u.st, g.Awake))
	case m.Waits != state.NobodyWaits:
		return fmt.Sprintf("a turn of node group %s waits until no action runs on its members", g.Name)
	case m.GapUntil <= now:
		return fmt.Sprintf("it is reserved on node group %s, whose turn may come at any time", g.Name)
	case m.GapUntil == math.MaxInt64:
		return fmt.Sprintf("node group %s has no reservation: actions of known duration may have it", g.Name)
	default:
		return fmt.Sprintf("actions may have it that end within %s, before the next reservation of node group %s", time.Duration(m.GapUntil-now).Round(time.Second), g.Name)
	}
}
