package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// GetNode returns one node.
func (s *Server) GetNode(ctx context.Context, req *rotav1.GetNodeRequest) (*rotav1.GetNodeResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	n, err := s.node(req.Name)
	return &rotav1.GetNodeResponse{Node: n}, err
}

func (s *Server) node(name string) (m *rotav1.Node, err error) {
	s.Machine.View(func(st *state.State) {
		if n := st.NodeByName(name); n != nil {
			m = nodeMessage(st, n)
			return
		}
		err = notFound("NODE_NOT_FOUND", "there is no node %q: ListNodes has their names", name)
	})
	return m, err
}

// ListNodes returns a page of nodes, of one pool or of all.
func (s *Server) ListNodes(ctx context.Context, req *rotav1.ListNodesRequest) (*rotav1.ListNodesResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 3, hashText(req.Pool))
	if err := firstOf(checkName("pool", req.Pool), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	var pool state.PoolID
	if req.Pool != "" {
		found := st.PoolByName(req.Pool)
		if found == nil {
			return nil, notFound("POOL_NOT_FOUND", "there is no pool %q: ListPools has their names", req.Pool)
		}
		pool = found.ID
	}
	resp := &rotav1.ListNodesResponse{}
	c := &collector{page: p}
	st.Nodes(state.NodeID(p.after), func(n *state.Node) bool {
		return c.visit(uint64(n.ID), func() proto.Message {
			if pool != 0 && n.Pool != pool {
				return nil
			}
			return appendRow(&resp.Nodes, nodeMessage(st, n))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

// DrainNode stops new work on a node, or allows it again.
func (s *Server) DrainNode(ctx context.Context, req *rotav1.DrainNodeRequest) (*rotav1.DrainNodeResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_DrainNode{
		DrainNode: &logv1.DrainNode{Name: req.Name, Draining: !req.Resume},
	}})
	if err != nil {
		return nil, err
	}
	n, err := s.node(req.Name)
	if err != nil { // removed since; the change was made all the same
		n = &rotav1.Node{Name: req.Name, Draining: !req.Resume}
	}
	return &rotav1.DrainNodeResponse{Node: n}, nil
}

// RemoveNode forgets a node that is down.
func (s *Server) RemoveNode(ctx context.Context, req *rotav1.RemoveNodeRequest) (*rotav1.RemoveNodeResponse, error) {
	if err := requireName("name", req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_RemoveNode{
		RemoveNode: &logv1.RemoveNode{Name: req.Name},
	}})
	return &rotav1.RemoveNodeResponse{}, err
}
