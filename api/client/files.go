package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// chunkBytes is how much of a file one call carries.
	chunkBytes = 1 << 20
	// chunksAtOnce is how many calls of one file are under way.
	chunksAtOnce = 4
)

// ErrChanged means that a file has changed while it was read.
var ErrChanged = errors.New("the file has changed while it was read: read it again")

// UploadFile writes a whole file into the directory of a trajectory. It appears there under its
// name when all of it has been written, in place of what had the name; the directories above it
// are made. Permissions are at most 0777; 0 means 0644. The error is that of the first call that
// failed, or of from; a part of the file may then be left under another name.
func (c *Client) UploadFile(ctx context.Context, trajectory uint64, name string, from io.ReaderAt, sizeBytes int64, mode fs.FileMode) error {
	temporary := path.Join(path.Dir(name), temporaryName(path.Base(name)))
	// Nothing is truncated: a try that was given up and arrives late writes what is there already.
	write := func(ctx context.Context, offset, n int64, first bool) error {
		req := &rotav1.WriteFileRequest{TrajectoryId: trajectory, Path: temporary, Offset: uint64(offset), Mode: uint32(mode.Perm()),
			Parents: first, Data: make([]byte, n)}
		if got, err := from.ReadAt(req.Data, offset); int64(got) < n {
			return fmt.Errorf("read what is to be uploaded: %w", errors.Join(err, ErrChanged))
		}
		_, err := c.Files.WriteFile(ctx, req)
		return err
	}
	// The first chunk makes the file.
	err := write(ctx, 0, min(sizeBytes, chunkBytes), true)
	if err == nil {
		err = eachChunk(ctx, chunkBytes, sizeBytes, func(ctx context.Context, offset, n int64) error { return write(ctx, offset, n, false) })
	}
	if err == nil {
		return c.moveUploaded(ctx, trajectory, temporary, name, sizeBytes)
	}
	if ctx.Err() == nil {
		_, _ = c.Files.RemoveFile(ctx, &rotav1.RemoveFileRequest{TrajectoryId: trajectory, Path: temporary}) // it may not be there
	}
	return err
}

// temporaryName is the name of a file until all of it is there. A name has 255 bytes at most.
func temporaryName(name string) string {
	if len(name) > 200 {
		name = strings.ToValidUTF8(name[:200], "")
	}
	return fmt.Sprintf(".%s.%016x.part", name, rand.Uint64())
}

// moveUploaded gives a file its name. A call that was repeated may find that done.
func (c *Client) moveUploaded(ctx context.Context, trajectory uint64, temporary, name string, sizeBytes int64) error {
	_, err := c.Files.MoveFile(ctx, &rotav1.MoveFileRequest{TrajectoryId: trajectory, Path: temporary, NewPath: name})
	if Detail(err).GetReason() != "FILE_NOT_FOUND" {
		return err
	}
	there, statErr := c.Files.StatFile(ctx, &rotav1.StatFileRequest{TrajectoryId: trajectory, Path: name})
	if statErr == nil && there.File.SizeBytes == uint64(sizeBytes) {
		return nil
	}
	return err
}

// DownloadFile reads a whole file from the directory of a trajectory, and returns its size in
// bytes. It fails with ErrChanged if the file gets another size meanwhile.
func (c *Client) DownloadFile(ctx context.Context, trajectory uint64, name string, to io.WriterAt) (sizeBytes int64, err error) {
	read := func(ctx context.Context, offset int64) (*rotav1.ReadFileResponse, error) {
		resp, err := c.Files.ReadFile(ctx, &rotav1.ReadFileRequest{
			TrajectoryId: trajectory, Path: name, Offset: uint64(offset), BytesMax: chunkBytes,
			AllowStale: offset > 0, // the first call has asked the leader
		})
		if err == nil {
			_, err = to.WriteAt(resp.Data, offset)
		}
		return resp, err
	}
	first, err := read(ctx, 0)
	if err != nil {
		return 0, err
	}
	size := int64(first.SizeBytes)
	if int64(len(first.Data)) != min(size, chunkBytes) {
		return 0, ErrChanged
	}
	return size, eachChunk(ctx, chunkBytes, size, func(ctx context.Context, offset, n int64) error {
		resp, err := read(ctx, offset)
		if err == nil && (int64(resp.SizeBytes) != size || int64(len(resp.Data)) != n) {
			err = ErrChanged
		}
		return err
	})
}

// eachChunk calls for each chunk between two offsets, several at once. The first error ends it.
func eachChunk(ctx context.Context, from, to int64, do func(ctx context.Context, offset, n int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(from)
	var wg sync.WaitGroup
	for range min(chunksAtOnce, (to-from+chunkBytes-1)/chunkBytes) {
		wg.Go(func() {
			for ctx.Err() == nil {
				offset := next.Add(chunkBytes) - chunkBytes
				if offset >= to {
					return
				}
				if err := do(ctx, offset, min(chunkBytes, to-offset)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
