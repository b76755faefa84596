package rpc

import (
	"context"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// UpdateNamespace changes the weight and the limits of a namespace.
func (s *Server) UpdateNamespace(ctx context.Context, req *rotav1.UpdateNamespaceRequest) (*rotav1.UpdateNamespaceResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: &logv1.UpdateNamespace{
		Name: req.Name, Weight: req.Weight, QueuedMax: req.QueuedActionsMax, RunningMax: req.RunningActionsMax,
		CoresMax: req.CoresMax, GpusMax: req.GpusMax, TrajectoriesMax: req.TrajectoriesMax, MemoryMax: req.MemoryMax,
	}}})
	if err != nil {
		return nil, err
	}
	list, err := s.ListNamespaces(ctx, &rotav1.ListNamespacesRequest{})
	if err != nil {
		return nil, err
	}
	resp := &rotav1.UpdateNamespaceResponse{}
	for _, n := range list.Namespaces {
		if n.Name == req.Name {
			resp.Namespace = n
		}
	}
	return resp, nil
}

// namespaceOf converts a namespace, but for its share.
func namespaceOf(st *state.State, n *state.Namespace) *rotav1.Namespace {
	settings, held := st.SettingsOf(n.ID), st.HeldBy(n.ID)
	return &rotav1.Namespace{
		Name: n.Name, QueuedActions: uint64(st.NamespaceQueued(n.ID)), Usage: usageOf(st.UseNow(n.ID)), Weight: settings.Weight,
		Limits: &rotav1.NamespaceLimits{
			QueuedActions: settings.QueuedMax, RunningActions: settings.RunningMax, Cores: settings.CoresMax, Gpus: settings.GPUsMax,
			Trajectories: settings.TrajectoriesMax, MemoryBytes: settings.MemoryMax,
		},
		Held: &rotav1.NamespaceHeld{
			RunningActions: uint64(held.Running), Cores: uint64(held.Cores), Gpus: uint64(held.GPUs), Trajectories: uint64(st.Opened(n.ID).Trajectories), MemoryBytes: held.Memory,
		},
	}
}

// shareOut fills in what part each of those that run or wait would get of what is contended.
func shareOut(all []*rotav1.Namespace) {
	competes := func(n *rotav1.Namespace) bool { return n.QueuedActions+n.Held.RunningActions > 0 }
	sum := 0.0
	for _, n := range all {
		if competes(n) {
			sum += float64(n.Weight)
		}
	}
	for _, n := range all {
		if competes(n) {
			n.Share = float64(n.Weight) / sum
		}
	}
}
