package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// simulatedCores is the size of a simulated node.
const simulatedCores = 128

// simulatedNode speaks the agents' part of the protocol and ends whatever it is
// given at once. It runs nothing.
type simulatedNode struct {
	service     rotav1connect.AgentServiceClient
	name        string
	incarnation uint64
	lease       time.Duration
}

// simulate registers nodes at the leader and keeps them going until the cluster
// is stopped.
func (h *held) simulate(ctx context.Context, n int) error {
	run, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	h.cleanup = append(h.cleanup, func() { cancel(); wg.Wait() })
	// A stream for each node; a connection carries some thousands of them.
	const nodesPerConnection = 1000
	var service rotav1connect.AgentServiceClient
	for i := range n {
		if i%nodesPerConnection == 0 {
			service = rotav1connect.NewAgentServiceClient(httpx.NewClient(nil), httpx.BaseURL(h.leader, false), codec.ForClient())
		}
		node := &simulatedNode{service: service, name: fmt.Sprintf("simulated-%d", i+1)}
		if err := node.register(ctx); err != nil {
			return err
		}
		wg.Go(func() { node.renew(run) })
		wg.Go(func() { node.work(run) })
	}
	return nil
}

func (s *simulatedNode) register(ctx context.Context) error {
	cpus := make([]uint32, simulatedCores)
	for i := range cpus {
		cpus[i] = uint32(i)
	}
	req := &rotav1.RegisterNodeRequest{
		Name: s.name, Address: "127.0.0.1:1", NumaNodes: []*rotav1.NumaNode{{Cpus: cpus}},
		MemoryBytes: 512 << 30, Runtime: "simulated", JournalId: rand.Text(),
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		resp, err := s.service.RegisterNode(ctx, req)
		if err == nil {
			s.incarnation, s.lease = resp.Incarnation, resp.LeaseDuration.AsDuration()
			return nil
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || ctx.Err() != nil {
			return fmt.Errorf("register %s: %w", s.name, err)
		}
		time.Sleep(20 * time.Millisecond) // a cluster that has just started
	}
}

func (s *simulatedNode) renew(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.lease / 3):
		}
		// A lost renewal is made up for by the next.
		_, _ = s.service.RenewLease(ctx, &rotav1.RenewLeaseRequest{Name: s.name, Incarnation: s.incarnation})
	}
}

// reportsMax is how many attempts one report may end.
const reportsMax = 1024

func (s *simulatedNode) work(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := s.service.WatchNode(ctx, &rotav1.WatchNodeRequest{Name: s.name, Incarnation: s.incarnation})
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		ended := uint64(0) // desired state up to this index may still have what was reported
		for stream.Receive() {
			if msg := stream.Msg(); msg.Index > ended {
				ended = max(ended, s.report(ctx, msg.Assignments))
			}
		}
		stream.Close()
	}
}

// report ends attempts and returns the index from which on they are gone.
func (s *simulatedNode) report(ctx context.Context, list []*rotav1.Assignment) uint64 {
	index := uint64(0)
	for len(list) > 0 {
		n := min(len(list), reportsMax)
		req := &rotav1.ReportAttemptsRequest{Name: s.name, Incarnation: s.incarnation}
		for _, a := range list[:n] {
			req.Reports = append(req.Reports, &rotav1.AttemptReport{
				ActionId: a.ActionId, Attempt: a.Attempt,
				Result: &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED},
			})
		}
		resp, err := s.service.ReportAttempts(ctx, req)
		if err != nil {
			return index // they are in the next desired state, too
		}
		index, list = resp.Index-1, list[n:]
	}
	return index
}
