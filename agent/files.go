package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/agent/files"
	"rota/agent/runtime"
	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/intake"
	"rota/api/share"
)

const (
	// fileRequestMax is the largest request: a chunk of a file, and where it goes.
	fileRequestMax = files.ChunkBytesMax + 64<<10
	// fileDecodingMax is what requests take in memory, all together.
	fileDecodingMax = 64 << 20
	// fileCallsMax is how many calls work at once: each has a thread. Trajectories share them as package
	// share says; a call waits for its turn.
	fileCallsMax = 64
	// filePageBytesMax is how large a page of a list may be before its last file.
	filePageBytesMax = 1 << 20
)

// fileService works with the files of trajectories for servers, which have checked that the
// trajectory is open here.
type fileService struct {
	dir   string // the supervisor's
	homes *homes
	forks *forks
	conn  func() runtime.Runtime
	calls *share.Slots[uint64] // by trajectory
}

var _ rotav1connect.FileServiceHandler = (*fileService)(nil)

// newFileHandler serves the files of trajectories.
func newFileHandler(a *agent) (path string, h http.Handler) {
	s := &fileService{dir: a.cfg.Process.Dir, homes: a.homes, forks: a.forks, conn: a.driver.connection, calls: share.New[uint64](fileCallsMax)}
	path, h = rotav1connect.NewFileServiceHandler(s, codec.ForHandler(), intake.ForHandler(), connect.WithReadMaxBytes(fileRequestMax))
	return path, intake.Handler(h, intake.Limits{MessageBytes: fileRequestMax, Budget: intake.NewBudget(fileDecodingMax)})
}

// with opens the directory of a trajectory for one call.
func (s *fileService) with(ctx context.Context, trajectory uint64, do func(h *files.Home) error) error {
	if trajectory == 0 {
		return refuse(connect.CodeInvalidArgument, "INVALID", "name a trajectory")
	}
	var snapshot uint64
	if call, ok := connect.CallInfoForHandlerContext(ctx); ok {
		snapshot, _ = strconv.ParseUint(call.RequestHeader().Get(httpx.SnapshotHeader), 10, 64)
		if index, err := strconv.ParseUint(call.RequestHeader().Get(httpx.IndexHeader), 10, 64); err == nil {
			s.homes.uses(trajectory, index)
		}
	}
	done, err := s.forks.use(ctx, trajectory, snapshot)
	if err != nil {
		return unusable(ctx, err)
	}
	defer done()
	release, err := s.turn(ctx, trajectory) // not before: files that are being copied must not hold up other calls
	if err != nil {
		return err
	}
	defer release()
	home, err := s.open(ctx, trajectory)
	if err != nil {
		return err
	}
	defer home.Close()
	return fileError(do(home))
}

// unusable is the answer to a call whose directory cannot be had.
func unusable(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errNotYet), errors.Is(err, runtime.ErrStopping):
		return refuse(connect.CodeUnavailable, "AGENT_BUSY", "the supervisor of the node is being started; try again")
	}
	return refuse(connect.CodeFailedPrecondition, "NO_DIRECTORY", err.Error())
}

// turn waits until the trajectory may have one more call at work.
func (s *fileService) turn(ctx context.Context, trajectory uint64) (release func(), err error) {
	for pause := (backoff.Backoff{Least: time.Millisecond, Most: 100 * time.Millisecond}); ; {
		if release, ok := s.calls.Take(trajectory); ok {
			return release, nil
		}
		if err := backoff.Sleep(ctx, pause.Next()); err != nil {
			return nil, err
		}
	}
}

// open opens the directory of a trajectory, which its first call makes.
func (s *fileService) open(ctx context.Context, trajectory uint64) (*files.Home, error) {
	dir := runtime.TrajectoryDir(s.dir, trajectory)
	home, err := files.Open(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return home, fileError(err)
	}
	conn := s.conn()
	if conn == nil {
		return nil, refuse(connect.CodeUnavailable, "AGENT_BUSY", "the supervisor of the node is being started; try again")
	}
	if _, err := conn.MakeTrajectory(ctx, trajectory); err != nil {
		return nil, refuse(connect.CodeFailedPrecondition, "NO_DIRECTORY", "the node cannot make the directory of the trajectory: "+err.Error())
	}
	home, err = files.Open(dir)
	return home, fileError(err)
}

// fileErrors are what clients are told of errors of the kernel and of package files.
var fileErrors = []knownError{
	{fs.ErrNotExist, connect.CodeNotFound, "FILE_NOT_FOUND"},
	{files.ErrPath, connect.CodeInvalidArgument, "INVALID_PATH"},
	{files.ErrNotRegular, connect.CodeFailedPrecondition, "NOT_REGULAR"},
	{files.ErrTooMany, connect.CodeFailedPrecondition, "TOO_MANY_FILES"},
	{syscall.EISDIR, connect.CodeFailedPrecondition, "IS_DIRECTORY"},
	{syscall.ENOTDIR, connect.CodeFailedPrecondition, "NOT_A_DIRECTORY"},
	{syscall.ENOTEMPTY, connect.CodeFailedPrecondition, "NOT_EMPTY"},
	{syscall.EXDEV, connect.CodeFailedPrecondition, "OTHER_FILE_SYSTEM"},
	{syscall.ETXTBSY, connect.CodeFailedPrecondition, "RUNNING"},
	{syscall.ELOOP, connect.CodeFailedPrecondition, "TOO_MANY_LINKS"},
	{syscall.ENAMETOOLONG, connect.CodeInvalidArgument, "INVALID_PATH"},
	{syscall.EINVAL, connect.CodeInvalidArgument, "INVALID"},
	{syscall.ENOSPC, connect.CodeResourceExhausted, "NO_SPACE"},
	{syscall.EDQUOT, connect.CodeResourceExhausted, "NO_SPACE"},
	{syscall.EFBIG, connect.CodeResourceExhausted, "NO_SPACE"},
	{fs.ErrExist, connect.CodeAlreadyExists, "FILE_EXISTS"},
	{fs.ErrPermission, connect.CodePermissionDenied, "NO_PERMISSION"},
}

// fileError is what a client is told of an error.
func fileError(err error) error {
	told := toldError(fileErrors, err)
	// os.Root has no name for the error that a path leads out of it.
	var path *fs.PathError
	if codec.Detail(told) == nil && errors.As(err, &path) && !errors.As(err, new(syscall.Errno)) {
		return refuse(connect.CodeInvalidArgument, "INVALID_PATH", err.Error())
	}
	return told
}

// text makes text of a name, which on a disk can be any bytes. Most decoders refuse a message with
// other bytes, so one such name would hide all others.
func text(name string) string { return strings.ToValidUTF8(name, string(utf8.RuneError)) }

func fileMessage(i files.Info) *rotav1.File {
	f := &rotav1.File{Name: text(i.Name()), Mode: uint32(i.Mode().Perm()), ChangeTime: timestamppb.New(i.ModTime()), Target: text(i.Target)}
	switch {
	case i.Mode().IsRegular():
		f.Type, f.SizeBytes = rotav1.FileType_FILE_TYPE_REGULAR, uint64(i.Size())
	case i.IsDir():
		f.Type = rotav1.FileType_FILE_TYPE_DIRECTORY
	case i.Mode().Type() == fs.ModeSymlink:
		f.Type = rotav1.FileType_FILE_TYPE_LINK
	default:
		f.Type = rotav1.FileType_FILE_TYPE_OTHER
	}
	return f
}

// ListFiles implements rotav1connect.FileServiceHandler. A page token is the last name, escaped.
func (s *fileService) ListFiles(ctx context.Context, req *rotav1.ListFilesRequest) (*rotav1.ListFilesResponse, error) {
	resp := &rotav1.ListFilesResponse{}
	limit := int(min(cmp.Or(req.GetPageSize(), files.PageMax), files.PageMax))
	after, err := url.PathUnescape(req.GetPageToken())
	if err != nil {
		return resp, refuse(connect.CodeInvalidArgument, "INVALID", "page_token is not one that a list has returned")
	}
	err = s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		list, more, err := h.List(req.GetPath(), after, limit)
		bytes := 0
		for n, i := range list {
			if bytes >= filePageBytesMax { // links can have long targets
				list, more = list[:n], true
				break
			}
			f := fileMessage(i)
			resp.Files = append(resp.Files, f)
			bytes += proto.Size(f)
		}
		if more {
			resp.NextPageToken = url.PathEscape(list[len(list)-1].Name())
		}
		return err
	})
	return resp, err
}

// StatFile implements rotav1connect.FileServiceHandler.
func (s *fileService) StatFile(ctx context.Context, req *rotav1.StatFileRequest) (*rotav1.StatFileResponse, error) {
	resp := &rotav1.StatFileResponse{}
	err := s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		i, err := h.Stat(req.GetPath())
		if err == nil {
			resp.File = fileMessage(i)
		}
		return err
	})
	return resp, err
}

// ReadFile implements rotav1connect.FileServiceHandler.
func (s *fileService) ReadFile(ctx context.Context, req *rotav1.ReadFileRequest) (*rotav1.ReadFileResponse, error) {
	resp := &rotav1.ReadFileResponse{}
	if req.GetOffset() > math.MaxInt64 {
		return resp, tooFar
	}
	limit := int(min(cmp.Or(req.GetBytesMax(), files.ChunkBytesMax), files.ChunkBytesMax))
	err := s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		data, size, err := h.Read(req.GetPath(), int64(req.GetOffset()), limit)
		resp.Data, resp.SizeBytes = data, uint64(size)
		return err
	})
	return resp, err
}

// tooFar refuses offsets that no file has.
var tooFar = refuse(connect.CodeInvalidArgument, "INVALID", "an offset must be less than 2^62")

// WriteFile implements rotav1connect.FileServiceHandler.
func (s *fileService) WriteFile(ctx context.Context, req *rotav1.WriteFileRequest) (*rotav1.WriteFileResponse, error) {
	resp := &rotav1.WriteFileResponse{}
	switch {
	case req.GetOffset() > math.MaxInt64/2:
		return resp, tooFar
	case len(req.GetData()) > files.ChunkBytesMax:
		return resp, refuse(connect.CodeInvalidArgument, "INVALID", "at most 1 MiB at once: write the rest at its offset")
	case req.GetMode() > 0o777:
		return resp, refuse(connect.CodeInvalidArgument, "INVALID", "permissions are at most 0777, which is 511")
	}
	err := s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		size, err := h.Write(req.GetPath(), files.Write{
			Offset: int64(req.GetOffset()), Data: req.GetData(), Truncate: req.GetTruncate(),
			Mode: os.FileMode(cmp.Or(req.GetMode(), 0o644)), Parents: req.GetParents(),
		})
		resp.SizeBytes = uint64(size)
		return err
	})
	return resp, err
}

// MakeDirectory implements rotav1connect.FileServiceHandler.
func (s *fileService) MakeDirectory(ctx context.Context, req *rotav1.MakeDirectoryRequest) (*rotav1.MakeDirectoryResponse, error) {
	return &rotav1.MakeDirectoryResponse{}, s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		return h.MakeDirectory(req.GetPath())
	})
}

// MoveFile implements rotav1connect.FileServiceHandler.
func (s *fileService) MoveFile(ctx context.Context, req *rotav1.MoveFileRequest) (*rotav1.MoveFileResponse, error) {
	return &rotav1.MoveFileResponse{}, s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		return h.Move(req.GetPath(), req.GetNewPath())
	})
}

// RemoveFile implements rotav1connect.FileServiceHandler.
func (s *fileService) RemoveFile(ctx context.Context, req *rotav1.RemoveFileRequest) (*rotav1.RemoveFileResponse, error) {
	return &rotav1.RemoveFileResponse{}, s.with(ctx, req.GetTrajectoryId(), func(h *files.Home) error {
		return h.Remove(ctx, req.GetPath(), req.GetRecursive())
	})
}
