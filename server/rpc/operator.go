package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// GetStatus describes the cluster as this server sees it.
func (s *Server) GetStatus(_ context.Context, _ *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	status := s.Cluster.Status()
	leader, addr := s.Replica.Leader()
	m := &rotav1.GetStatusResponse{
		ServerId: s.ServerID, LeaderId: leader, LeaderAddress: addr,
		Term: status.Term, CommitIndex: status.Commit, Quarantined: status.Quarantined,
		LogTime: timestamp(s.LogTime()), Version: s.Version, FeatureLevelMax: uint32(s.LevelMax),
	}
	s.Machine.View(func(st *state.State) {
		meta, counts := st.Meta(), st.Counts()
		m.ClusterId, m.AppliedIndex, m.Revision = meta.ClusterID, meta.Applied, meta.Revision
		m.FeatureLevel, m.Origin = uint32(meta.Level), originMessage(meta)
		m.StagedRestore = stagedMessage(st)
		m.QueuedActions, m.RunningActions = uint64(counts.Queued), uint64(counts.Running)
		m.OpenTrajectories, m.NodesUp = uint64(counts.OpenTrajectories), uint64(counts.NodesUp)
		m.LeaseDuration = durationpb.New(time.Duration(meta.Settings.LeaseNS))
		m.LeaseMargin = durationpb.New(time.Duration(meta.Settings.LeaseMarginNS))
	})
	return m, nil
}

// GetStateHash returns the hash of this server's own state.
func (s *Server) GetStateHash(ctx context.Context, req *rotav1.GetStateHashRequest) (*rotav1.GetStateHashResponse, error) {
	index, hash, err := s.Machine.HashSince(ctx, req.MinIndex)
	if err != nil {
		return nil, err
	}
	return &rotav1.GetStateHashResponse{ServerId: s.ServerID, Index: index, Hash: fmt.Sprintf("%016x", hash)}, nil
}

// TakeSnapshot makes this server write a snapshot now.
func (s *Server) TakeSnapshot(ctx context.Context, _ *rotav1.TakeSnapshotRequest) (*rotav1.TakeSnapshotResponse, error) {
	index, size, err := s.Cluster.TakeSnapshot(ctx)
	return &rotav1.TakeSnapshotResponse{Index: index, SizeBytes: size}, err
}

// CreateNamespace creates a namespace.
func (s *Server) CreateNamespace(ctx context.Context, req *rotav1.CreateNamespaceRequest) (*rotav1.CreateNamespaceResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_CreateNamespace{
		CreateNamespace: &logv1.CreateNamespace{Name: req.Name},
	}})
	return &rotav1.CreateNamespaceResponse{}, err
}

// ListNamespaces returns all namespaces.
func (s *Server) ListNamespaces(ctx context.Context, req *rotav1.ListNamespacesRequest) (*rotav1.ListNamespacesResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.ListNamespacesResponse{}
	st := s.Machine.Fork()
	st.Namespaces(func(n *state.Namespace) bool {
		resp.Namespaces = append(resp.Namespaces, namespaceOf(st, n))
		return true
	})
	shareOut(resp.Namespaces)
	return resp, nil
}

// usageOf converts what a namespace has used; nil is nothing.
func usageOf(u *state.NamespaceUse) *rotav1.NamespaceUsage {
	if u == nil {
		return nil
	}
	return &rotav1.NamespaceUsage{
		CoreSeconds: float64(u.CoreUS) / 1e6, GpuSeconds: float64(u.GPUUS) / 1e6, CpuSeconds: float64(u.CPUUS) / 1e6,
		MemoryByteSeconds: MemoryByteSeconds(u),
		Attempts:          u.Attempts, EndedActions: u.Ended, SucceededActions: u.Succeeded,
	}
}

// MemoryByteSeconds returns seconds times bytes of memory that a namespace has reserved.
func MemoryByteSeconds(u *state.NamespaceUse) float64 {
	return (float64(u.MemoryMiBS) + float64(u.MemoryRest)/1e9) * (1 << 20)
}

// ListPools returns all pools.
func (s *Server) ListPools(ctx context.Context, req *rotav1.ListPoolsRequest) (*rotav1.ListPoolsResponse, error) {
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.ListPoolsResponse{}
	byID := map[state.PoolID]*rotav1.Pool{}
	st := s.Machine.Fork()
	st.Pools(func(p *state.Pool) bool {
		all, forQuotas, forGPUs := st.PoolQueued(p.ID)
		m := &rotav1.Pool{
			Name: p.Name, Halted: p.Halted, QueuedActions: uint64(all),
			QueuedForQuotas: uint64(forQuotas), QueuedForGpus: uint64(forGPUs),
		}
		byID[p.ID] = m
		resp.Pools = append(resp.Pools, m)
		return true
	})
	st.Nodes(0, func(n *state.Node) bool {
		if n.State == state.NodeUp {
			byID[n.Pool].NodesUp++
		}
		return true
	})
	return resp, nil
}

// DeleteNamespace forgets a namespace that nothing refers to.
func (s *Server) DeleteNamespace(ctx context.Context, req *rotav1.DeleteNamespaceRequest) (*rotav1.DeleteNamespaceResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_DeleteNamespace{
		DeleteNamespace: &logv1.DeleteNamespace{Name: req.Name},
	}})
	return &rotav1.DeleteNamespaceResponse{}, err
}

// DeletePool forgets a pool that nothing refers to.
func (s *Server) DeletePool(ctx context.Context, req *rotav1.DeletePoolRequest) (*rotav1.DeletePoolResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_DeletePool{
		DeletePool: &logv1.DeletePool{Name: req.Name},
	}})
	return &rotav1.DeletePoolResponse{}, err
}

// ResumePool lets a pool schedule again.
func (s *Server) ResumePool(ctx context.Context, req *rotav1.ResumePoolRequest) (*rotav1.ResumePoolResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ResumePool{
		ResumePool: &logv1.ResumePool{Name: req.Name},
	}})
	return &rotav1.ResumePoolResponse{}, err
}
