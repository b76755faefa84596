package rpc

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm"
	"rota/fsm/state"
)

// backupChunkBytes is how much of a backup one message has.
const backupChunkBytes = 256 << 10

// SaveSnapshot streams the state as it was after everything that was acknowledged before the
// call. It is a copy that stays as it is, so nothing waits for the caller.
func (s *Server) SaveSnapshot(ctx context.Context, _ *rotav1.SaveSnapshotRequest, stream *connect.ServerStream[rotav1.SaveSnapshotResponse]) error {
	if err := s.catchUp(ctx, false); err != nil {
		return err
	}
	st := s.Machine.Fork()
	m := st.Meta()
	if m.ClusterID == "" {
		return unavailable(time.Second, "NOT_BOOTSTRAPPED", "the cluster has just been started and has no state yet: try again")
	}
	header := &rotav1.BackupHeader{
		ClusterId: m.ClusterID, Index: m.Applied, Term: s.Cluster.Status().Term, FeatureLevel: uint32(m.Level), Release: m.Release,
		Hash: fmt.Sprintf("%016x", st.Hash()), Time: timestamppb.Now(), ServerId: s.ServerID, Version: s.Version,
	}
	if err := stream.Send(&rotav1.SaveSnapshotResponse{Header: header}); err != nil {
		return err
	}
	out := &backupStream{stream: stream}
	sum := sha256.New()
	buf := bufio.NewWriterSize(out, backupChunkBytes)
	if err := st.Save(&summed{buf, sum.Write}); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	return stream.Send(&rotav1.SaveSnapshotResponse{Trailer: &rotav1.BackupTrailer{Bytes: out.sent, Sha256: sum.Sum(nil)}})
}

// summed adds what is written to a sum as well.
type summed struct {
	*bufio.Writer
	sum func([]byte) (int, error)
}

func (w *summed) Write(p []byte) (int, error) {
	_, _ = w.sum(p) // never fails
	return w.Writer.Write(p)
}

// backupStream sends what is written to it.
type backupStream struct {
	stream *connect.ServerStream[rotav1.SaveSnapshotResponse]
	sent   uint64
}

func (b *backupStream) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		part := p[done:min(len(p), done+backupChunkBytes)]
		if err := b.stream.Send(&rotav1.SaveSnapshotResponse{Data: part}); err != nil {
			return done, err
		}
		done += len(part)
		b.sent += uint64(len(part))
	}
	return len(p), nil
}

// checkUpload checks how a request names an upload.
func checkUpload(id string) *violation {
	if id == "" || len(id) > state.UploadBytesMax {
		return wrong("id", "must have 1 to %d bytes", state.UploadBytesMax)
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return wrong("id", "must be letters and digits")
		}
	}
	return nil
}

// StageRestore keeps a part of a backup.
func (s *Server) StageRestore(ctx context.Context, req *rotav1.StageRestoreRequest) (*rotav1.StageRestoreResponse, error) {
	v := checkUpload(req.Id)
	drop := req.Number == 0 && len(req.Data) == 0
	switch {
	case v != nil:
	case req.Number >= state.RestorePartsMax:
		v = wrong("number", "must be below %d", state.RestorePartsMax)
	case len(req.Data) > state.RestorePartBytesMax || len(req.Data) == 0 && !drop:
		v = wrong("data", "must have 1 to %d bytes", state.RestorePartBytesMax)
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	c := &logv1.StageRestore{Id: req.Id, Number: req.Number, Data: req.Data, Force: req.Force}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: c}})
	return &rotav1.StageRestoreResponse{}, err
}

// CommitRestore replaces the state. A server that does not know the level of the backup
// would have to stop, so the leader asks all of them first, unless the level is active already.
func (s *Server) CommitRestore(ctx context.Context, req *rotav1.CommitRestoreRequest) (*rotav1.CommitRestoreResponse, error) {
	v := checkUpload(req.Id)
	if v == nil && (req.Parts == 0 || req.Parts > state.RestorePartsMax) {
		v = wrong("parts", "must be 1 to %d", state.RestorePartsMax)
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	return onLeader(ctx, s, func() (*rotav1.CommitRestoreResponse, error) {
		return s.commitRestore(ctx, req)
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.CommitRestoreResponse, error) {
		return c.CommitRestore(ctx, req)
	})
}

// commitRestore commits it at the leader: to apply it may take longer than a server waits
// for the answer to a command that it passes on.
func (s *Server) commitRestore(ctx context.Context, req *rotav1.CommitRestoreRequest) (*rotav1.CommitRestoreResponse, error) {
	if err := hold(ctx, s.members.TryLock); err != nil {
		return nil, err
	}
	defer s.members.Unlock()
	level, err := s.stagedLevel(ctx, req)
	if err != nil {
		return nil, err
	}
	if level > s.Machine.Level() { // all servers know the active one
		if _, err := s.levelToRaise(ctx, level); err != nil {
			return nil, err
		}
	}
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CommitRestore{CommitRestore: &logv1.CommitRestore{
		Id: req.Id, Parts: req.Parts, Sum: req.Sum, Force: req.Force,
	}}})
	if err != nil {
		return nil, err
	}
	resp := &rotav1.CommitRestoreResponse{Index: result.Index, AttemptsLost: uint64(result.Count)}
	s.Machine.View(func(st *state.State) { resp.ClusterId = st.Meta().ClusterID })
	s.Logger.Warn("the state was replaced by that of a backup", "index", result.Index, "attempts_lost", result.Count)
	return resp, nil
}

// stagedLevel returns the feature level of the backup that is staged, or what the caller says if
// that is newer or nothing usable is staged. The caller is not believed: a server that applies
// a backup of a level that it does not know stops, and so would all of them.
func (s *Server) stagedLevel(ctx context.Context, req *rotav1.CommitRestoreRequest) (state.Level, error) {
	said := state.Level(req.FeatureLevel)
	if err := s.catchUp(ctx, false); err != nil {
		return said, err
	}
	data, sum, err := s.Machine.Fork().Staged(req.Id, req.Parts)
	if err != nil || sum != req.Sum {
		return said, nil // it is refused when it is applied
	}
	restored, err := fsm.RestoreBackup(data)
	if beyond := (*state.Beyond)(nil); errors.As(err, &beyond) {
		return max(said, beyond.Level), nil
	}
	if err != nil { // no server is to spend time on it
		return said, failed(connect.CodeInvalidArgument, "BACKUP_UNUSABLE", "the backup cannot be restored: %v", err)
	}
	return max(said, restored.Meta().Level), nil
}

// stagedMessage describes the backup that is being uploaded; nil without one.
func stagedMessage(st *state.State) *rotav1.StagedRestore {
	due, ok := st.RestoreDue()
	if !ok {
		return nil
	}
	return &rotav1.StagedRestore{Id: st.RestorePart(0).Upload, Parts: uint32(st.RestorePartCount()), ExpireTime: wallOf(st).timestamp(due)}
}

// originMessage says where the state came from; nil if the cluster was founded with it.
func originMessage(m *state.Meta) *rotav1.StateOrigin {
	o := &m.Origin
	if o.Kind == state.OriginFounded {
		return nil
	}
	return &rotav1.StateOrigin{
		Kind: rotav1.StateOrigin_Kind(o.Kind), ClusterId: o.Cluster, Index: o.Index, Time: timestamp(o.At),
	}
}
