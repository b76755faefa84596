package rpc

import (
	"context"
	"strconv"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/fsm/state"
)

// home is where the directory of a trajectory is.
type home struct {
	node, addr, namespace string
	// index is that of the state in which the trajectory was open there.
	index uint64
	// snapshot is what the trajectory began with; 0: nothing.
	snapshot uint64
}

// homeOf finds the node of an open trajectory.
func (s *Server) homeOf(id state.TrajectoryID) (h home, err error) {
	s.Machine.View(func(st *state.State) {
		t := st.Trajectory(id)
		switch {
		case t == nil:
			err = trajectoryNotFound(st, id)
			return
		case t.State == state.TrajectoryPending:
			err = failed(connect.CodeFailedPrecondition, "TRAJECTORY_PENDING", "trajectory %d waits for a node with enough free memory; nothing of it is there before", id)
			return
		case t.State != state.TrajectoryOpen:
			err = failed(connect.CodeFailedPrecondition, "TRAJECTORY_ENDED", "trajectory %d is not open any more, and what it had on its node goes with it", id)
			return
		}
		n := st.Node(t.Node) // there is one: an invariant of state
		h = home{node: n.Name, addr: n.Address, index: st.Meta().Applied, snapshot: uint64(t.Snapshot)}
		if ns := st.Namespace(t.Namespace); ns != nil {
			h.namespace = ns.Name
		}
	})
	return h, err
}

// onHome passes a call on to the agent of a trajectory's node.
func onHome[C, Req, Resp any](ctx context.Context, s *Server, trajectory uint64, stale bool, req *Req,
	agent func(addr string) C, call func(C, context.Context, *Req) (*Resp, error),
) (*Resp, error) {
	if err := requireID("trajectory_id", trajectory).err(); err != nil {
		return nil, err
	}
	if err := s.catchUpForCall(ctx, stale); err != nil {
		return nil, err
	}
	h, err := s.homeOf(state.TrajectoryID(trajectory))
	if err != nil {
		return nil, err
	}
	if f := s.takeContents(ctx, h.namespace); f != nil {
		return nil, f
	}
	out, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set(httpx.IndexHeader, strconv.FormatUint(h.index, 10))
	if h.snapshot != 0 {
		info.RequestHeader().Set(httpx.SnapshotHeader, strconv.FormatUint(h.snapshot, 10))
	}
	resp, err := call(agent(h.addr), out, req)
	switch {
	case err == nil || ctx.Err() != nil || hasDetail(err):
		return resp, err
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		return nil, failed(connect.CodeFailedPrecondition, "AGENT_TOO_OLD", "the agent of node %s is of a release that cannot do that for trajectories: upgrade it", h.node)
	}
	return nil, unavailable(time.Second, "NODE_UNREACHABLE", "node %s, on which trajectory %d lives, cannot be reached at %s: %v", h.node, trajectory, h.addr, err)
}

// ListFiles lists a directory of a trajectory.
func (s *Server) ListFiles(ctx context.Context, req *rotav1.ListFilesRequest) (*rotav1.ListFilesResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, req.AllowStale, req, s.Files, rotav1connect.FileServiceClient.ListFiles)
}

// StatFile describes a file of a trajectory.
func (s *Server) StatFile(ctx context.Context, req *rotav1.StatFileRequest) (*rotav1.StatFileResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, req.AllowStale, req, s.Files, rotav1connect.FileServiceClient.StatFile)
}

// ReadFile reads a part of a file of a trajectory.
func (s *Server) ReadFile(ctx context.Context, req *rotav1.ReadFileRequest) (*rotav1.ReadFileResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, req.AllowStale, req, s.Files, rotav1connect.FileServiceClient.ReadFile)
}

// WriteFile writes a part of a file of a trajectory.
func (s *Server) WriteFile(ctx context.Context, req *rotav1.WriteFileRequest) (*rotav1.WriteFileResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, false, req, s.Files, rotav1connect.FileServiceClient.WriteFile)
}

// MakeDirectory makes a directory of a trajectory.
func (s *Server) MakeDirectory(ctx context.Context, req *rotav1.MakeDirectoryRequest) (*rotav1.MakeDirectoryResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, false, req, s.Files, rotav1connect.FileServiceClient.MakeDirectory)
}

// MoveFile renames a file of a trajectory.
func (s *Server) MoveFile(ctx context.Context, req *rotav1.MoveFileRequest) (*rotav1.MoveFileResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, false, req, s.Files, rotav1connect.FileServiceClient.MoveFile)
}

// RemoveFile removes a file of a trajectory.
func (s *Server) RemoveFile(ctx context.Context, req *rotav1.RemoveFileRequest) (*rotav1.RemoveFileResponse, error) {
	return onHome(ctx, s, req.TrajectoryId, false, req, s.Files, rotav1connect.FileServiceClient.RemoveFile)
}
