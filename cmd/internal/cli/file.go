package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) fileCmd() *cobra.Command {
	return group("file", "See and change the files of a trajectory",
		a.reads(a.fileListCmd()), a.reads(a.fileStatCmd()), a.reads(a.fileReadCmd()), a.fileWriteCmd(), a.fileMkdirCmd(), a.fileMoveCmd(), a.fileRemoveCmd())
}

// remotePath is a place in the directory of a trajectory: 7:src/main.go, or 7 for all of it.
type remotePath struct {
	trajectory uint64
	path       string
}

func (r remotePath) String() string { return fmt.Sprintf("%d:%s", r.trajectory, r.path) }

// isRemote tells places of trajectories from files of this machine.
func isRemote(text string) bool {
	id, _, found := strings.Cut(text, ":")
	_, err := parseID(id)
	return found && err == nil
}

func parseRemote(text string) (remotePath, error) {
	number, path, _ := strings.Cut(text, ":")
	id, err := parseID(number)
	if err != nil {
		return remotePath{}, usageErrorf("%q is no file of a trajectory: write TRAJECTORY:PATH, such as 7:src/main.go", text)
	}
	return remotePath{id, path}, nil
}

// fileVerb is a command on a file of a trajectory, its first argument.
func (a *app) fileVerb(use, short, example string, arguments []string,
	do func(ctx context.Context, c *client.Client, at remotePath, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " " + strings.Join(arguments, " "), Short: short, Args: exactly(arguments...), Example: example,
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			at, err := parseRemote(args[0])
			if err != nil {
				return err
			}
			return do(ctx, c, at, args[1:])
		}),
	}
}

// onFile names the argument of most commands.
var onFile = []string{"TRAJECTORY:PATH"}

func (a *app) fileListCmd() *cobra.Command {
	cmd := a.fileVerb("list", "List a directory of a trajectory", "  rota file list 7\n  rota file list 7:src", onFile,
		func(ctx context.Context, c *client.Client, at remotePath, _ []string) error {
			all := &rotav1.ListFilesResponse{}
			err := a.eachFile(ctx, c, at, func(f *rotav1.File) error {
				all.Files = append(all.Files, f)
				return nil
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Files))
			for _, f := range all.Files {
				rows = append(rows, []string{fileName(f), fileSize(f), fmt.Sprintf("%04o", f.Mode), formatTime(f.ChangeTime)})
			}
			return a.print(all, []string{"name", "size", "mode", "changed"}, rows)
		})
	cmd.Aliases = []string{"ls"}
	return cmd
}

// eachFile visits the files of a directory.
func (a *app) eachFile(ctx context.Context, c *client.Client, at remotePath, visit func(*rotav1.File) error) error {
	req := &rotav1.ListFilesRequest{TrajectoryId: at.trajectory, Path: at.path}
	var failed error
	err := pages(ctx, a, c.Files.ListFiles, req, &req.PageToken, func(page *rotav1.ListFilesResponse) {
		for _, f := range page.Files {
			if failed == nil {
				failed = visit(f)
			}
		}
	})
	return errors.Join(err, failed)
}

// fileName shows what a file is by its end, as ls -F does.
func fileName(f *rotav1.File) string {
	switch f.Type {
	case rotav1.FileType_FILE_TYPE_DIRECTORY:
		return f.Name + "/"
	case rotav1.FileType_FILE_TYPE_LINK:
		return f.Name + " -> " + f.Target
	}
	return f.Name
}

func fileSize(f *rotav1.File) string {
	if f.Type != rotav1.FileType_FILE_TYPE_REGULAR {
		return ""
	}
	return formatSize(f.SizeBytes)
}

func (a *app) fileStatCmd() *cobra.Command {
	return a.fileVerb("stat", "Show what a file of a trajectory is", "  rota file stat 7:src/main.go -o json", onFile,
		func(ctx context.Context, c *client.Client, at remotePath, _ []string) error {
			resp, err := call(ctx, a, c.Files.StatFile, &rotav1.StatFileRequest{TrajectoryId: at.trajectory, Path: at.path})
			if err != nil {
				return err
			}
			f := resp.File
			return a.printFields(f, []field{
				{"name", f.GetName()},
				{"type", enumWord(f.GetType(), "FILE_TYPE_")},
				{"size", fileSize(f)},
				{"mode", fmt.Sprintf("%04o", f.GetMode())},
				{"changed", formatTime(f.GetChangeTime())},
				{"leads to", f.GetTarget()},
			})
		})
}

func (a *app) fileReadCmd() *cobra.Command {
	return a.fileVerb("read", "Write the content of a file to standard output", "  rota file read 7:report.txt", onFile,
		func(ctx context.Context, c *client.Client, at remotePath, _ []string) error {
			req := &rotav1.ReadFileRequest{TrajectoryId: at.trajectory, Path: at.path}
			for {
				resp, err := call(ctx, a, c.Files.ReadFile, req)
				if err != nil {
					return err
				}
				if _, err := a.out.Write(resp.Data); err != nil {
					return err
				}
				req.Offset += uint64(len(resp.Data))
				if len(resp.Data) == 0 || req.Offset >= resp.SizeBytes {
					return nil
				}
			}
		})
}

func (a *app) fileWriteCmd() *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use: "write TRAJECTORY:PATH", Short: "Write standard input into a file of a trajectory", Args: exactly(onFile...),
		Long: "Writes standard input into a file, which ends where standard input ends. If writing fails half-way,\n" +
			"the beginning of the file is new and the rest is as before; rota cp writes a whole file or nothing.",
		Example: "  echo hello | rota file write 7:greeting\n" +
			"  rota file write 7:bin/check --mode 0755 < check.sh",
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		at, err := parseRemote(args[0])
		if err != nil {
			return err
		}
		req := &rotav1.WriteFileRequest{TrajectoryId: at.trajectory, Path: at.path, Parents: true}
		if req.Mode, err = parseMode(mode); err != nil {
			return err
		}
		buffer := make([]byte, 1<<20)
		for {
			n, err := io.ReadFull(cmd.InOrStdin(), buffer)
			end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
			if err != nil && !end {
				return fmt.Errorf("read standard input: %w", err)
			}
			// Only the last call truncates: an earlier one that is repeated and arrives late must not cut off what
			// was written since.
			req.Data, req.Truncate = buffer[:n], end
			if _, err := call(ctx, a, c.Files.WriteFile, req); err != nil {
				if req.Offset > 0 {
					a.say("the first %s of standard input were written", formatSize(req.Offset))
				}
				return err
			}
			if end {
				return nil
			}
			req.Offset += uint64(n)
		}
	})
	cmd.Flags().StringVar(&mode, "mode", "0644", "permissions of a file that is made, in octal")
	return cmd
}

func parseMode(text string) (mode uint32, err error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return 0, usageErrorf("--mode must be octal and at most 0777, such as 0755, not %q", text)
	}
	return uint32(n), nil
}

func (a *app) fileMkdirCmd() *cobra.Command {
	return a.fileVerb("mkdir", "Make a directory and those above it", "  rota file mkdir 7:src/pkg", onFile,
		func(ctx context.Context, c *client.Client, at remotePath, _ []string) error {
			_, err := call(ctx, a, c.Files.MakeDirectory, &rotav1.MakeDirectoryRequest{TrajectoryId: at.trajectory, Path: at.path})
			return err
		})
}

func (a *app) fileMoveCmd() *cobra.Command {
	cmd := a.fileVerb("move", "Rename a file or a directory", "  rota file move 7:draft.txt final.txt", []string{"TRAJECTORY:PATH", "NEW_PATH"},
		func(ctx context.Context, c *client.Client, at remotePath, args []string) error {
			_, err := call(ctx, a, c.Files.MoveFile, &rotav1.MoveFileRequest{TrajectoryId: at.trajectory, Path: at.path, NewPath: args[0]})
			return err
		})
	cmd.Aliases = []string{"mv"}
	return cmd
}

func (a *app) fileRemoveCmd() *cobra.Command {
	var recursive bool
	cmd := a.fileVerb("remove", "Remove a file, a link or a directory", "  rota file remove 7:build --recursive", onFile,
		func(ctx context.Context, c *client.Client, at remotePath, _ []string) error {
			_, err := call(ctx, a, c.Files.RemoveFile, &rotav1.RemoveFileRequest{TrajectoryId: at.trajectory, Path: at.path, Recursive: recursive})
			return err
		})
	cmd.Aliases = []string{"rm"}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove a directory with all that is in it")
	return cmd
}
