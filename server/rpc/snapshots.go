package rpc

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

// snapshotReportsMax bounds the reports of one call.
const snapshotReportsMax = 256

// CreateSnapshot asks for a snapshot of the files of a trajectory.
func (s *Server) CreateSnapshot(ctx context.Context, req *rotav1.CreateSnapshotRequest) (*rotav1.CreateSnapshotResponse, error) {
	if err := firstOf(checkRequest(req.RequestId, req.ExpireTime), requireID("trajectory_id", req.TrajectoryId), checkText("name", req.Name, 128)).err(); err != nil {
		return nil, err
	}
	c := &logv1.CreateSnapshot{TrajectoryId: req.TrajectoryId, Name: req.Name}
	c.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) {
		digestText(d, "snapshot")
		digestText(d, c.Name)
		digestNumber(d, c.TrajectoryId)
	})
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_ChangeSnapshot{
		ChangeSnapshot: &logv1.ChangeSnapshot{Change: &logv1.ChangeSnapshot_Create{Create: c}},
	}})
	if err != nil {
		return nil, err
	}
	out := &rotav1.CreateSnapshotResponse{Snapshot: &rotav1.Snapshot{Id: result.FirstId}, Replayed: result.Replayed}
	s.Machine.View(func(st *state.State) {
		if r := st.FileSnapshot(state.FileSnapshotID(result.FirstId)); r != nil {
			out.Snapshot, err = snapshotMessage(st, r)
		}
	})
	return out, err
}

// GetSnapshot returns a snapshot.
func (s *Server) GetSnapshot(ctx context.Context, req *rotav1.GetSnapshotRequest) (*rotav1.GetSnapshotResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	r := st.FileSnapshot(state.FileSnapshotID(req.Id))
	if r == nil {
		return nil, snapshotNotFound(req.Id)
	}
	m, err := snapshotMessage(st, r)
	return &rotav1.GetSnapshotResponse{Snapshot: m}, err
}

func snapshotNotFound(id uint64) error {
	return notFound("SNAPSHOT_NOT_FOUND", "there is no snapshot %d: ListSnapshots has those that there are", id)
}

// ListSnapshots returns a page of snapshots.
func (s *Server) ListSnapshots(ctx context.Context, req *rotav1.ListSnapshotsRequest) (*rotav1.ListSnapshotsResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 17, hashText(orDefault(req.Namespace)), hashText(req.Node), req.TrajectoryId)
	if err := firstOf(checkNamespaceOrAll(req.Namespace), checkName("node", req.Node), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	var namespace state.NamespaceID
	if req.Namespace != allNamespaces {
		var err error
		if namespace, err = namespaceID(st, req.Namespace); err != nil {
			return nil, err
		}
	}
	resp := &rotav1.ListSnapshotsResponse{}
	c, mayRead := &collector{page: p}, readable(ctx, st, "snapshot")
	var err error
	st.FileSnapshots(state.FileSnapshotID(p.after), func(r *state.FileSnapshot) bool {
		return c.visit(uint64(r.ID), func() proto.Message {
			if namespace != 0 && r.Namespace != namespace || req.TrajectoryId != 0 && uint64(r.Trajectory) != req.TrajectoryId ||
				req.Node != "" && nodeName(st, r.Node) != req.Node || !mayRead(r.Namespace) || err != nil {
				return nil
			}
			var m *rotav1.Snapshot
			m, err = snapshotMessage(st, r)
			return appendRow(&resp.Snapshots, m)
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, err
}

func checkNamespaceOrAll(name string) *violation {
	if name == allNamespaces {
		return nil
	}
	return checkName("namespace", name)
}

// DeleteSnapshot has a snapshot removed.
func (s *Server) DeleteSnapshot(ctx context.Context, req *rotav1.DeleteSnapshotRequest) (*rotav1.DeleteSnapshotResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_ChangeSnapshot{
		ChangeSnapshot: &logv1.ChangeSnapshot{Change: &logv1.ChangeSnapshot_Delete{Delete: req.Id}},
	}})
	return &rotav1.DeleteSnapshotResponse{}, err
}

// ReportSnapshots commits what has become of snapshots on a node.
func (s *Server) ReportSnapshots(ctx context.Context, req *rotav1.ReportSnapshotsRequest) (*rotav1.ReportSnapshotsResponse, error) {
	if err := checkSnapshotReports(req).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	c := &logv1.ReportSnapshots{Node: req.Name, Incarnation: req.Incarnation}
	for _, r := range req.Reports {
		c.Reports = append(c.Reports, &logv1.SnapshotReport{
			SnapshotId: r.SnapshotId, State: uint32(r.State), Bytes: r.Bytes, Message: sentence(r.Message, state.FileSnapshotMessageBytesMax),
		})
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportSnapshots{ReportSnapshots: c}})
	return &rotav1.ReportSnapshotsResponse{}, err
}

func checkSnapshotReports(req *rotav1.ReportSnapshotsRequest) *violation {
	if v := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation),
		checkCount("reports", "report", len(req.Reports), snapshotReportsMax)); v != nil {
		return v
	}
	for i, r := range req.Reports {
		if v := requireID("snapshot_id", r.GetSnapshotId()); v != nil {
			return v.in("reports[%d]", i)
		}
		switch r.GetState() {
		case rotav1.SnapshotState_SNAPSHOT_STATE_READY, rotav1.SnapshotState_SNAPSHOT_STATE_FAILED, rotav1.SnapshotState_SNAPSHOT_STATE_LOST:
		default:
			return wrong("state", "must be READY, FAILED or LOST").in("reports[%d]", i)
		}
	}
	return nil
}

func snapshotMessage(st *state.State, r *state.FileSnapshot) (*rotav1.Snapshot, error) {
	wall := wallOf(st)
	out := &rotav1.Snapshot{
		Id: uint64(r.ID), Name: r.Name, TrajectoryId: uint64(r.Trajectory), Node: endName(st, r.Node),
		State: rotav1.SnapshotState(r.State), Message: r.Message, Bytes: r.Bytes,
		CreateTime: wall.timestamp(r.CreatedAt), EndTime: wall.timestamp(r.EndedAt),
	}
	if ns := st.Namespace(r.Namespace); ns != nil {
		out.Namespace = ns.Name
	}
	spec, err := trajectorySpecOf(r.Spec)
	if err != nil {
		return nil, fmt.Errorf("decode the specification of snapshot %d: %w", r.ID, err)
	}
	out.Image = spec.GetContainer().GetImage()
	return out, nil
}

func trajectorySpecOf(encoded string) (*rotav1.TrajectorySpec, error) {
	spec := new(rotav1.TrajectorySpec)
	return spec, spec.UnmarshalVT([]byte(encoded))
}

// mayBeginWith returns why a caller may not begin trajectories with snapshots of a namespace, nil if it
// may: what it opens has their files. The server has caught up since the call came, so its rights are
// looked up once more.
func (s *Server) mayBeginWith(c *caller, namespace string) *failure {
	need, checked := s.rightOf(c, rotav1connect.SnapshotServiceGetSnapshotProcedure)
	if !checked {
		return nil
	}
	now := *c
	if f := s.resolve(&now); f != nil {
		return f
	}
	if !now.may.Allows(need.noun, need.verb, namespace) {
		return rightMissing(&now, need, namespace)
	}
	return nil
}

// fromSnapshot completes the request of a trajectory that begins with a snapshot: it lives in the pool
// of the snapshot's node and in a container of its image, with the environment of its trajectory. A
// repetition of a request that was carried out is left as it is if the snapshot is gone.
func (s *Server) fromSnapshot(ctx context.Context, req *rotav1.OpenTrajectoryRequest) (*rotav1.OpenTrajectoryRequest, error) {
	if req.SnapshotId == 0 {
		return req, nil
	}
	if err := s.catchUp(ctx, false); err != nil {
		return nil, err
	}
	if f := s.mayBeginWith(callerOf(ctx), orDefault(req.Namespace)); f != nil {
		return nil, f
	}
	st := s.Machine.Fork()
	r := st.FileSnapshot(state.FileSnapshotID(req.SnapshotId))
	if ns := st.NamespaceByName(orDefault(req.Namespace)); r == nil || ns == nil || r.Namespace != ns.ID {
		if req.RequestId != "" && st.Request(req.RequestId) != nil {
			return req, nil
		}
		return nil, snapshotNotFound(req.SnapshotId)
	}
	spec, err := trajectorySpecOf(r.Spec)
	if err != nil {
		return nil, fmt.Errorf("decode the specification of snapshot %d: %w", r.ID, err)
	}
	out := proto.CloneOf(req)
	if own := out.Spec; own != nil {
		if own.Container != nil && own.Container.Image != spec.Container.GetImage() {
			return nil, failed(connect.CodeInvalidArgument, "INVALID", "snapshot %d has image %q, and the trajectory asks for %q: leave the image out", r.ID, spec.Container.GetImage(), own.Container.Image)
		}
		if own.Container != nil {
			spec.Container = own.Container
		}
		if own.Dir != "" {
			spec.Dir = own.Dir
		}
		if own.Env != nil {
			spec.Env = own.Env
		}
	}
	spec.SnapshotId = req.SnapshotId
	out.Spec = spec
	if n := st.Node(r.Node); out.Pool == "" && n != nil && st.Pool(n.Pool) != nil {
		out.Pool = st.Pool(n.Pool).Name
	}
	return out, nil
}
