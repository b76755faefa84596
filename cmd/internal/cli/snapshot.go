package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/server/backup"
)

func (a *app) backupCmd() *cobra.Command {
	return group("snapshot", "Back up the cluster, and restore a backup",
		a.backupSaveCmd(), a.backupExtractCmd(), a.backupInspectCmd(), a.backupRestoreCmd(), a.backupAgentCmd())
}

func (a *app) backupSaveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "save FILE", Short: "Write a backup of the cluster to a file", Args: exactly("FILE"),
		Long: `Writes the state of the cluster, with everything that was acknowledged before the command
began, to a file, or to an object store as s3://BUCKET/KEY. The file appears when it is whole and on the disk; a file of that name is
replaced then. Only you can read it: it holds the commands and environments of actions.

The backup is of what servers replicate. It has no certificates and keys, no output and
files on nodes, and no weights of models.`,
		Example: "  rota operator snapshot save rota.backup\n  rota operator snapshot save s3://backups/rota.backup",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			saved, err := saveTo(ctx, args[0], func(ctx context.Context, path string) (*backup.File, error) { return saveBackup(ctx, c, path) })
			if err != nil {
				return err
			}
			return a.printFields(saved.Header, backupFields(args[0], saved))
		}),
	}
}

// saveBackup writes a backup to a path and returns what it holds.
func saveBackup(ctx context.Context, c *client.Client, path string) (*backup.File, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, m, err := client.First(ctx, c, func(ctx context.Context) (*connect.ServerStreamForClient[rotav1.SaveSnapshotResponse], error) {
		return c.Operator.SaveSnapshot(ctx, &rotav1.SaveSnapshotRequest{})
	})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if m.GetHeader() == nil {
		return nil, errors.New("the server sent no backup")
	}
	w, err := backup.Create(path, m.Header)
	if err != nil {
		return nil, err
	}
	var trailer *rotav1.BackupTrailer
	for trailer == nil && stream.Receive() {
		trailer = stream.Msg().Trailer
		if _, err := w.Write(stream.Msg().Data); err != nil {
			return nil, errors.Join(err, w.Cancel())
		}
	}
	if err := stream.Err(); err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	return finishBackup(w, path, trailer)
}

// finishBackup finishes a backup and verifies it.
func finishBackup(w *backup.Writer, path string, trailer *rotav1.BackupTrailer) (*backup.File, error) {
	if err := w.Finish(trailer); err != nil {
		return nil, err
	}
	f, err := backup.Open(path) // what the disk has, not what was meant
	if err != nil {
		return nil, err
	}
	return f, f.Close()
}

func backupFields(path string, f *backup.File) []field {
	h := f.Header
	return []field{
		{"file", path}, {"cluster", h.ClusterId}, {"index", fmt.Sprint(h.Index)}, {"term", fmt.Sprint(h.Term)},
		{"feature level", fmt.Sprint(h.FeatureLevel)}, {"state hash", h.Hash}, {"time", formatTime(h.Time)},
		{"saved by", cmp.Or(h.ServerId, "rota operator snapshot extract") + ", " + h.Version}, {"size", formatSize(uint64(f.Bytes))}, {"sha256", fmt.Sprintf("%x", f.SHA256)},
	}
}

// inspection is what a backup holds, as JSON.
type inspection struct {
	File    string             `json:"file"`
	Cluster string             `json:"clusterId"`
	Index   uint64             `json:"index"`
	Term    uint64             `json:"term"`
	Level   uint32             `json:"featureLevel"`
	Hash    string             `json:"hash"`
	Time    time.Time          `json:"time"`
	Server  string             `json:"serverId"`
	Version string             `json:"version"`
	Bytes   int64              `json:"bytes"`
	SHA256  string             `json:"sha256"`
	LogTime time.Time          `json:"logTime"`
	Queued  int                `json:"queuedActions"`
	Running int                `json:"runningActions"`
	Tables  []state.TableCount `json:"tables"`
}

func (a *app) backupInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Short: "Verify a backup and say what is in it", Args: exactly("FILE"),
		Long: `Reads a backup, verifies its checksums, the hash of its state and that its rows fit together, and shows what it holds.
It needs no cluster. The command fails if the file is damaged.`,
		Example: "  rota operator snapshot inspect rota.backup\n  rota operator snapshot inspect rota.backup -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withBackup(cmd.Context(), args[0], func(f *backup.File) error { return a.inspect(args[0], f) })
		},
	}
}

// inspect says what is in a backup.
func (a *app) inspect(path string, f *backup.File) error {
	s, err := restoreState(f)
	if err != nil {
		return err
	}
	if a.json() {
		return writeJSON(a.out, inspectionOf(path, f, s))
	}
	a.writeFields(backupFields(path, f))
	rows := make([][]string, 0, len(s.TableCounts()))
	for _, t := range s.TableCounts() {
		rows = append(rows, []string{t.Name, fmt.Sprint(t.Rows)})
	}
	fmt.Fprintln(a.out)
	writeTable(a.out, []string{"table", "rows"}, rows)
	return nil
}

// restoreState decodes the state in a backup, and compares it with what the header says.
func restoreState(f *backup.File) (*state.State, error) {
	s, err := fsm.RestoreBackup(f.Data())
	if err != nil {
		return nil, err
	}
	m := s.Meta()
	if hash := fmt.Sprintf("%016x", s.Hash()); hash != f.Header.Hash || m.ClusterID != f.Header.ClusterId || m.Applied != f.Header.Index {
		return nil, fmt.Errorf("%w: it holds cluster %s at index %d with hash %s, and says %s, %d and %s", backup.ErrDamaged,
			m.ClusterID, m.Applied, hash, f.Header.ClusterId, f.Header.Index, f.Header.Hash)
	}
	return s, nil
}

func inspectionOf(path string, f *backup.File, s *state.State) inspection {
	h, counts := f.Header, s.Counts()
	return inspection{
		File: path, Cluster: h.ClusterId, Index: h.Index, Term: h.Term, Level: h.FeatureLevel, Hash: h.Hash, Time: h.Time.AsTime(),
		Server: h.ServerId, Version: h.Version, Bytes: f.Bytes, SHA256: fmt.Sprintf("%x", f.SHA256), LogTime: time.Unix(0, s.Meta().Now).UTC(),
		Queued: counts.Queued, Running: counts.Running, Tables: s.TableCounts(),
	}
}

func (a *app) backupRestoreCmd() *cobra.Command {
	var force bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Restore a backup into a new cluster", Args: exactly("FILE"),
		Long: `Uploads a backup and replaces the state of the cluster by it, on all servers at once. The
cluster must be new: nothing was submitted or declared. Nodes may have registered. It keeps
its own cluster ID.

What ran when the backup was made may still run, or have ended since. So all of it counts as
lost: attempts end as node-lost and are tried again by their own rules, turns that were held
or waited are given up, trajectories that lived on nodes end. Agents of the old cluster that
meet the new one kill what they run of the old one, and report nothing of it.

If the command is cut off before the last step, nothing has changed: run it again.

With --force, the state of a cluster in use is replaced. Everything in it is gone.`,
		Example: "  rota operator snapshot restore rota.backup",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			return withBackup(ctx, args[0], func(f *backup.File) error {
				resp, err := a.restore(ctx, c, f, force)
				if err != nil {
					return err
				}
				return a.printFields(resp, []field{
					{"restored", args[0]}, {"of cluster", f.Header.ClusterId}, {"into cluster", resp.ClusterId}, {"index", fmt.Sprint(resp.Index)},
					{"attempts lost", fmt.Sprintf("%d, which ran when the backup was made", resp.AttemptsLost)},
				})
			})
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace the state of a cluster in use")
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Minute, "how long to try")
	return cmd
}

// restore uploads a backup part by part and commits it. Each step may be repeated.
func (a *app) restore(ctx context.Context, c *client.Client, f *backup.File, force bool) (resp *rotav1.CommitRestoreResponse, err error) {
	commit := &rotav1.CommitRestoreRequest{Id: rand.Text(), Force: force, FeatureLevel: f.Header.FeatureLevel}
	defer func() {
		if err != nil {
			// What was uploaded is of no use any more: servers must not keep it. If it cannot be
			// dropped, the next upload does that.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropWait)
			defer cancel()
			_, _ = c.Operator.StageRestore(ctx, &rotav1.StageRestoreRequest{Id: commit.Id})
		}
	}()
	sum, data := xxhash.New(), f.Data()
	for buf := make([]byte, state.RestorePartBytesMax); ; {
		n, err := io.ReadFull(data, buf)
		if n == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		_, _ = sum.Write(buf[:n]) // never fails
		part := &rotav1.StageRestoreRequest{Id: commit.Id, Number: commit.Parts, Data: buf[:n], Force: force}
		if _, err := untilDone(ctx, c.Operator.StageRestore, part); err != nil {
			return nil, err
		}
		commit.Parts++
	}
	commit.Sum = sum.Sum64()
	return untilDone(ctx, c.Operator.CommitRestore, commit)
}

// dropWait is how long a restore that failed tries to drop what it uploaded.
const dropWait = 5 * time.Second

// untilDone repeats a call that may be repeated while there is no leader, or no answer.
func untilDone[Req, Resp any](ctx context.Context, method func(context.Context, *Req) (*Resp, error), req *Req) (*Resp, error) {
	for {
		resp, err := method(ctx, req)
		if err == nil {
			return resp, nil
		}
		switch connect.CodeOf(err) {
		case connect.CodeUnavailable, connect.CodeAborted, connect.CodeResourceExhausted:
		default:
			return resp, err
		}
		if backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			return resp, err
		}
	}
}
