package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) cpCmd() *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use: "cp SOURCE TARGET", Short: "Copy files to and from a trajectory", Args: exactly("SOURCE", "TARGET"),
		Long: `Copy files between this machine and the directory of a trajectory, TRAJECTORY:PATH.
If the target is a directory, the copy has the name of the source in it.
A file appears when all of it is there. Links, and what is no file, are left out.`,
		Example: "  rota cp main.py 7:\n  rota cp -r ./project 7:project\n  rota cp 7:report.xml ./report.xml\n  rota cp -r 7:out ./results",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			from, to := isRemote(args[0]), isRemote(args[1])
			if from == to {
				return usageErrorf("one of both must be TRAJECTORY:PATH, such as 7:src, and the other a file of this machine (write ./7:src for one with such a name)")
			}
			job := &copying{app: a, client: c, recursive: recursive}
			err := job.run(ctx, args[0], args[1], to)
			if job.files > 0 || err == nil {
				fmt.Fprintf(a.err, "rota: copied %s, %s\n", plural(job.files, "file"), formatSize(uint64(job.bytes)))
			}
			return err
		}),
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy a directory with all that is in it")
	return cmd
}

// copying is one rota cp.
type copying struct {
	*app
	client    *client.Client
	recursive bool
	files     int
	bytes     int64
}

func (j *copying) run(ctx context.Context, source, target string, up bool) error {
	if up {
		at, err := parseRemote(target)
		if err != nil {
			return err
		}
		return j.upload(ctx, source, at)
	}
	at, err := parseRemote(source)
	if err != nil {
		return err
	}
	return j.download(ctx, at, target)
}

// needsRecursive refuses a directory without -r.
func (j *copying) needsRecursive(dir string) error {
	if j.recursive {
		return nil
	}
	return usageErrorf("%s is a directory: copy it with -r", dir)
}

func (j *copying) leftOut(what string) {
	fmt.Fprintf(j.err, "rota: %s is left out: it is neither a file nor a directory\n", printable(what))
}

func (j *copying) upload(ctx context.Context, source string, at remotePath) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	if st.IsDir() {
		if err := j.needsRecursive(source); err != nil {
			return err
		}
	}
	there, err := call(ctx, j.app, j.client.Files.StatFile, &rotav1.StatFileRequest{TrajectoryId: at.trajectory, Path: at.path})
	switch {
	case err != nil && connect.CodeOf(err) != connect.CodeNotFound || client.Detail(err).GetReason() == "TRAJECTORY_NOT_FOUND":
		return err
	case there.GetFile().GetType() == rotav1.FileType_FILE_TYPE_DIRECTORY, strings.HasSuffix(at.path, "/"):
		name, err := filepath.Abs(source)
		if err != nil {
			return err
		}
		at.path = path.Join(at.path, filepath.Base(name))
	}
	if source, err = filepath.EvalSymlinks(source); err != nil { // WalkDir does not go into a link
		return err
	}
	return filepath.WalkDir(source, func(local string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(source, local)
		if err != nil {
			return err
		}
		remote := path.Join(at.path, filepath.ToSlash(below))
		st, err := os.Stat(local)
		switch {
		case err != nil && local == source:
			return err
		case local != source && !d.Type().IsRegular() && !d.IsDir(), err == nil && !st.Mode().IsRegular() && !st.IsDir():
			j.leftOut(local)
			return nil
		case err != nil:
			return err
		case st.IsDir():
			_, err := call(ctx, j.app, j.client.Files.MakeDirectory, &rotav1.MakeDirectoryRequest{TrajectoryId: at.trajectory, Path: remote})
			return err
		}
		return j.uploadFile(ctx, local, remotePath{at.trajectory, remote}, st)
	})
}

func (j *copying) uploadFile(ctx context.Context, local string, at remotePath, st fs.FileInfo) error {
	f, err := os.Open(local)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := j.client.UploadFile(ctx, at.trajectory, at.path, f, st.Size(), st.Mode()); err != nil {
		return fmt.Errorf("copy %s to %s: %w", local, at, err)
	}
	j.files++
	j.bytes += st.Size()
	return nil
}

func (j *copying) download(ctx context.Context, at remotePath, target string) error {
	resp, err := call(ctx, j.app, j.client.Files.StatFile, &rotav1.StatFileRequest{TrajectoryId: at.trajectory, Path: at.path})
	if err != nil {
		return err
	}
	if resp.File.Type == rotav1.FileType_FILE_TYPE_DIRECTORY {
		if err := j.needsRecursive(at.String()); err != nil {
			return err
		}
	}
	if st, err := os.Stat(target); err == nil && st.IsDir() && path.Clean(at.path) != "." {
		target = filepath.Join(target, path.Base(at.path))
	}
	return j.downloadAny(ctx, at, resp.File, target)
}

// downloadAny copies what a file of a trajectory is. Names in the directory were chosen by
// commands that nobody trusts: each is one part of a path.
func (j *copying) downloadAny(ctx context.Context, at remotePath, f *rotav1.File, target string) error {
	switch f.Type {
	case rotav1.FileType_FILE_TYPE_REGULAR:
		return j.downloadFile(ctx, at, f, target)
	case rotav1.FileType_FILE_TYPE_DIRECTORY:
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return j.eachFile(ctx, j.client, at, func(f *rotav1.File) error {
			if f.Name == "" || f.Name == ".." || f.Name == "." || strings.ContainsRune(f.Name, '/') {
				return fmt.Errorf("the node lists a file with the name %q: report this as a bug", f.Name)
			}
			return j.downloadAny(ctx, remotePath{at.trajectory, path.Join(at.path, f.Name)}, f, filepath.Join(target, f.Name))
		})
	}
	j.leftOut(at.String())
	return nil
}

func (j *copying) downloadFile(ctx context.Context, at remotePath, f *rotav1.File, target string) (err error) {
	part, err := os.CreateTemp(filepath.Dir(target), ".rota-*.part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("copy %s to %s: %w", at, target, err), os.Remove(part.Name()))
		}
	}()
	size, err := j.client.DownloadFile(ctx, at.trajectory, at.path, part)
	if err == nil {
		err = part.Chmod(fs.FileMode(f.Mode & 0o777))
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	j.files++
	j.bytes += size
	return os.Rename(part.Name(), target)
}
