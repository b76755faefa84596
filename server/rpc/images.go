package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// prefetchesMax is how many prefetches of images a server passes on at once.
const prefetchesMax = 1024

// PrefetchImage passes a call on to the agent of a node, and what that says.
func (s *Server) PrefetchImage(ctx context.Context, req *rotav1.PrefetchImageRequest, stream *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
	v := firstOf(requireName("node", req.Node), checkContainer(&rotav1.Container{Image: req.Image}))
	if err := v.err(); err != nil {
		return err
	}
	if err := s.catchUp(ctx, false); err != nil {
		return err
	}
	addr, err := s.addressOf(req.Node)
	if err != nil {
		return err
	}
	if s.prefetches.Add(1) > prefetchesMax {
		s.prefetches.Add(-1)
		return unavailable(time.Second, "OVERLOADED", "this server has %d prefetches of images under way: have fewer at once, or use another server", prefetchesMax)
	}
	defer s.prefetches.Add(-1)
	return s.prefetch(ctx, addr, req, stream.Send)
}

// addressOf is where the agent of a node listens that is up.
func (s *Server) addressOf(node string) (addr string, err error) {
	s.Machine.View(func(st *state.State) {
		n := st.NodeByName(node)
		switch {
		case n == nil:
			err = notFound("NODE_NOT_FOUND", "there is no node %q: ListNodes has their names", node)
		case n.State != state.NodeUp:
			err = failed(connect.CodeUnavailable, "NODE_DOWN", "node %s is down: start its agent", node)
		default:
			addr = n.Address
		}
	})
	return addr, err
}

// prefetch passes on what an agent says until it is done.
func (s *Server) prefetch(ctx context.Context, addr string, req *rotav1.PrefetchImageRequest, send func(*rotav1.PrefetchImageResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := s.Images(addr).PrefetchImage(ctx, req)
	if err != nil {
		return prefetchError(ctx, req.Node, addr, err)
	}
	defer from.Close()
	for from.Receive() {
		if err := send(from.Msg()); err != nil || from.Msg().Done {
			return err
		}
	}
	return prefetchError(ctx, req.Node, addr, from.Err())
}

// prefetchError is what the caller is told when an agent does not say that it is done.
func prefetchError(ctx context.Context, node, addr string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return unavailable(time.Second, "NODE_UNREACHABLE", "the agent of node %s did not say how the prefetch ended", node)
	case hasDetail(err):
		return err
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		return failed(connect.CodeFailedPrecondition, "AGENT_TOO_OLD", "the agent of node %s is of a release that prefetches no images: upgrade it", node)
	}
	return unavailable(time.Second, "NODE_UNREACHABLE", "node %s cannot be reached at %s: %v", node, addr, err)
}
