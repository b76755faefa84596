package rpc

import (
	"context"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// ReportGpus commits which GPUs of a node are sick.
func (s *Server) ReportGpus(ctx context.Context, req *rotav1.ReportGpusRequest) (*rotav1.ReportGpusResponse, error) {
	if err := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation), checkSickGPUs(req.Sick)).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	c := &logv1.ReportGpus{Node: req.Name, Incarnation: req.Incarnation}
	for _, g := range req.Sick {
		c.Sick |= 1 << g.Gpu
		c.Reasons = append(c.Reasons, sentence(g.Reason, state.GPUReasonMax))
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: c}})
	return &rotav1.ReportGpusResponse{}, err
}

// DisableGpus takes GPUs of a node out of use.
func (s *Server) DisableGpus(ctx context.Context, req *rotav1.DisableGpusRequest) (*rotav1.DisableGpusResponse, error) {
	if len(req.Reason) > state.GPUReasonMax {
		return nil, wrong("reason", "must have at most %d bytes, has %d", state.GPUReasonMax, len(req.Reason)).err()
	}
	n, err := s.drainGPUs(ctx, req.Name, req.Gpus, &logv1.DrainNode{Draining: true, Reason: req.Reason})
	return &rotav1.DisableGpusResponse{Node: n}, err
}

// EnableGpus brings GPUs of a node back into use.
func (s *Server) EnableGpus(ctx context.Context, req *rotav1.EnableGpusRequest) (*rotav1.EnableGpusResponse, error) {
	n, err := s.drainGPUs(ctx, req.Name, req.Gpus, &logv1.DrainNode{})
	return &rotav1.EnableGpusResponse{Node: n}, err
}

func (s *Server) drainGPUs(ctx context.Context, name string, gpus []uint32, c *logv1.DrainNode) (*rotav1.Node, error) {
	if err := firstOf(requireName("name", name), checkCount("gpus", "GPU", len(gpus), state.GPUsPerNodeMax)).err(); err != nil {
		return nil, err
	}
	c.Name = name
	for _, gpu := range gpus {
		if gpu >= state.GPUsPerNodeMax {
			return nil, wrong("gpus", "are numbers from 0 to %d, not %d", state.GPUsPerNodeMax-1, gpu).err()
		}
		c.Gpus |= 1 << gpu
	}
	if _, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: c}}); err != nil {
		return nil, err
	}
	n, err := s.node(name)
	if err != nil { // removed since; the change was made all the same
		n = &rotav1.Node{Name: name}
	}
	return n, nil
}

func checkSickGPUs(sick []*rotav1.SickGpu) *violation {
	for i, g := range sick {
		if g.GetGpu() >= state.GPUsPerNodeMax || i > 0 && g.GetGpu() <= sick[i-1].GetGpu() || g == nil {
			return wrong("sick", "must be GPUs by ascending numbers from 0 to %d; number %d is not", state.GPUsPerNodeMax-1, i)
		}
	}
	return nil
}

// unhealthyGPUs are the GPUs of a node of which its agent or an operator said something.
func unhealthyGPUs(n *state.Node) (all []*rotav1.UnhealthyGpu) {
	for _, gpu := range (state.SetOf(n.Sick) | state.SetOf(n.Disabled)).Slice() {
		m := &rotav1.UnhealthyGpu{Gpu: gpu, Trusted: n.Trusted&(1<<gpu) != 0}
		m.Sick, _ = state.FaultOf(n.Sick, gpu)
		m.DisabledReason, m.Disabled = state.FaultOf(n.Disabled, gpu)
		all = append(all, m)
	}
	return all
}
