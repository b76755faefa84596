package e2b

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"

	"rota/api/codec"
	"rota/api/gen/e2b/filesystem"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// entriesMax bounds a list of files below a directory.
	entriesMax = 10_000
	// entriesBytesMax bounds their paths, together.
	entriesBytesMax = 2 << 20
	// listsMax bounds the lists that are made and sent at once.
	listsMax = 64
	// linksMax is of how many links in a list it is said what they lead to.
	linksMax = 100
	// filesPage is how many files are read at once.
	filesPage = 1000
)

// directories is the service Filesystem.
type directories struct{ e *E2B }

// Stat describes a file.
func (d directories) Stat(ctx context.Context, req *filesystem.StatRequest) (*filesystem.StatResponse, error) {
	entry, err := sandboxIn(ctx).stat(ctx, req.Path)
	return &filesystem.StatResponse{Entry: entry}, err
}

func (s *sandbox) stat(ctx context.Context, p string) (*filesystem.EntryInfo, error) {
	relative, err := inside(p)
	if err != nil {
		return nil, err
	}
	resp, err := s.files.StatFile(ctx, &rotav1.StatFileRequest{TrajectoryId: s.id, Path: relative, AllowStale: true})
	if err != nil {
		return nil, err
	}
	entry := entryOf(resp.File, relative)
	if resp.File.GetType() == rotav1.FileType_FILE_TYPE_LINK {
		s.resolve(ctx, relative, entry)
	}
	return entry, nil
}

// resolve gives the entry of a link the type of what it leads to, which is what programs ask for.
// One that leads to nothing in the directory of the trajectory stays a link.
func (s *sandbox) resolve(ctx context.Context, relative string, entry *filesystem.EntryInfo) {
	_, err := s.files.ListFiles(ctx, &rotav1.ListFilesRequest{TrajectoryId: s.id, Path: relative, PageSize: 1, AllowStale: true})
	if err == nil {
		entry.Type = filesystem.FileType_FILE_TYPE_DIRECTORY
		return
	}
	resp, err := s.files.ReadFile(ctx, &rotav1.ReadFileRequest{TrajectoryId: s.id, Path: relative, BytesMax: 1, AllowStale: true})
	if err == nil {
		entry.Type, entry.Size = filesystem.FileType_FILE_TYPE_FILE, int64(resp.SizeBytes)
	}
}

// MakeDir makes a directory and those above it. SDKs are to hear of one that is there already.
func (d directories) MakeDir(ctx context.Context, req *filesystem.MakeDirRequest) (*filesystem.MakeDirResponse, error) {
	s := sandboxIn(ctx)
	relative, err := inside(req.Path)
	if err != nil {
		return nil, err
	}
	switch there, err := s.stat(ctx, req.Path); {
	case err == nil && there.Type == filesystem.FileType_FILE_TYPE_DIRECTORY:
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("the directory %s exists", there.Path))
	case err == nil:
		return nil, invalid("%s exists and is not a directory", there.Path)
	case connect.CodeOf(err) != connect.CodeNotFound:
		return nil, err
	}
	if _, err := s.files.MakeDirectory(ctx, &rotav1.MakeDirectoryRequest{TrajectoryId: s.id, Path: relative}); err != nil {
		return nil, err
	}
	entry, err := s.stat(ctx, req.Path)
	return &filesystem.MakeDirResponse{Entry: entry}, err
}

// Move renames a file or a directory, and makes the directories above its new place.
func (d directories) Move(ctx context.Context, req *filesystem.MoveRequest) (*filesystem.MoveResponse, error) {
	s := sandboxIn(ctx)
	from, err := inside(req.Source)
	if err != nil {
		return nil, err
	}
	to, err := inside(req.Destination)
	if err != nil {
		return nil, err
	}
	if _, err := s.stat(ctx, req.Source); err != nil {
		return nil, err
	}
	if parent := path.Dir(to); parent != "." {
		if _, err := s.files.MakeDirectory(ctx, &rotav1.MakeDirectoryRequest{TrajectoryId: s.id, Path: parent}); err != nil {
			return nil, err
		}
	}
	if _, err := s.files.MoveFile(ctx, &rotav1.MoveFileRequest{TrajectoryId: s.id, Path: from, NewPath: to}); err != nil {
		return nil, err
	}
	entry, err := s.stat(ctx, req.Destination)
	return &filesystem.MoveResponse{Entry: entry}, err
}

// Remove removes a file, or a directory with all that is in it. One that is not there is no error.
func (d directories) Remove(ctx context.Context, req *filesystem.RemoveRequest) (*filesystem.RemoveResponse, error) {
	s := sandboxIn(ctx)
	relative, err := inside(req.Path)
	if err != nil {
		return nil, err
	}
	_, err = s.files.RemoveFile(ctx, &rotav1.RemoveFileRequest{TrajectoryId: s.id, Path: relative, Recursive: true})
	if codec.Detail(err).GetReason() == "FILE_NOT_FOUND" {
		err = nil
	}
	return &filesystem.RemoveResponse{}, err
}

// ListDir lists what is in a directory, and in those below it down to a depth.
func (d directories) ListDir(ctx context.Context, req *filesystem.ListDirRequest) (*filesystem.ListDirResponse, error) {
	s := sandboxIn(ctx)
	relative, err := inside(req.Path)
	if err != nil {
		return nil, err
	}
	resp, links := &filesystem.ListDirResponse{}, map[string]*filesystem.EntryInfo{}
	err = s.walk(ctx, relative, max(req.Depth, 1), func(p string, f *rotav1.File) {
		resp.Entries = append(resp.Entries, entryOf(f, p))
		if f.Type == rotav1.FileType_FILE_TYPE_LINK && len(links) < linksMax {
			links[p] = resp.Entries[len(resp.Entries)-1]
		}
	})
	for p, entry := range links {
		s.resolve(ctx, p, entry)
	}
	return resp, err
}

// walk visits what is below a directory: each directory before what is in it. Directories that
// vanish meanwhile are left out.
func (s *sandbox) walk(ctx context.Context, dir string, depth uint32, visit func(relative string, f *rotav1.File)) error {
	left, leftBytes := entriesMax, entriesBytesMax
	var descend func(dir string, depth uint32) error
	descend = func(dir string, depth uint32) error {
		files, err := s.readDir(ctx, dir, &left)
		if err != nil {
			return err
		}
		for _, f := range files {
			p := path.Join(dir, f.Name)
			if leftBytes -= len(p); leftBytes < 0 {
				return invalid("the paths of the files have more than %d bytes: list a directory below, or less deep", entriesBytesMax)
			}
			visit(p, f)
			if f.Type != rotav1.FileType_FILE_TYPE_DIRECTORY || depth <= 1 {
				continue
			}
			if err := descend(p, depth-1); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
				return err
			}
		}
		return nil
	}
	return descend(dir, depth)
}

// readDir lists one directory, and takes its entries from those that are left.
func (s *sandbox) readDir(ctx context.Context, dir string, left *int) (files []*rotav1.File, err error) {
	req := &rotav1.ListFilesRequest{TrajectoryId: s.id, Path: dir, PageSize: filesPage, AllowStale: true}
	for {
		resp, err := s.files.ListFiles(ctx, req)
		if err != nil {
			return nil, err
		}
		if *left -= len(resp.Files); *left < 0 {
			return nil, invalid("there are more than %d files: list a directory below, or less deep", entriesMax)
		}
		files = append(files, resp.Files...)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return files, nil
		}
	}
}

// entryOf is what a program is told of a file.
func entryOf(f *rotav1.File, relative string) *filesystem.EntryInfo {
	e := &filesystem.EntryInfo{
		Name: path.Base(outside(relative)), Path: outside(relative), Size: int64(f.GetSizeBytes()), Mode: f.GetMode(),
		Owner: user, Group: user, ModifiedTime: f.GetChangeTime(),
	}
	mode := fs.FileMode(f.GetMode()).Perm()
	switch f.GetType() {
	case rotav1.FileType_FILE_TYPE_REGULAR:
		e.Type = filesystem.FileType_FILE_TYPE_FILE
	case rotav1.FileType_FILE_TYPE_DIRECTORY:
		e.Type, mode = filesystem.FileType_FILE_TYPE_DIRECTORY, mode|fs.ModeDir
	case rotav1.FileType_FILE_TYPE_LINK:
		target := strings.ToValidUTF8(f.Target, string(utf8.RuneError))
		e.Type, mode, e.SymlinkTarget = filesystem.FileType_FILE_TYPE_SYMLINK, mode|fs.ModeSymlink, &target
	}
	e.Permissions = mode.String()
	return e
}
