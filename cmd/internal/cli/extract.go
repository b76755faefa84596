package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/server/backup"
	"rota/server/replica"
)

func (a *app) backupExtractCmd() *cobra.Command {
	var dir string
	var snapshotOnly bool
	cmd := &cobra.Command{
		Use: "extract FILE", Short: "Make a backup of what the disk of a stopped server has", Args: exactly("FILE"),
		Long: `Reads the newest snapshot in the data folder of a stopped server, applies the log behind it, and writes a backup
as "save" does. It needs no cluster and changes nothing in the folder. Entries that only other servers have are not
in it, even if they were acknowledged: "rota operator recover" shows without --yes how far a folder reaches.

It also reads folders of builds before feature levels (commit 95d24ce and earlier). Their logs cannot be applied, as
these builds decided differently, so all of the state must be in the snapshot. Submit nothing any more, stop the
agents, let one server write a snapshot with "rota operator raft snapshot" of the old build, and stop that server
first. If commands are behind the snapshot all the same, the command fails. With --snapshot-only it does not look at
the log.`,
		Example: "  rota operator snapshot extract --data /var/lib/rota rota.backup\n" +
			"  rota operator snapshot extract --data /var/lib/rota --snapshot-only rota.backup",
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				return usageErrorf("give --data DIR, the data folder of a stopped server")
			}
			x, err := a.extract(cmd.Context(), dir, snapshotOnly)
			if err != nil {
				return err
			}
			saved, err := saveTo(cmd.Context(), args[0], x.save)
			if err != nil {
				return err
			}
			return a.printFields(saved.Header, backupFields(args[0], saved))
		},
	}
	cmd.Flags().StringVar(&dir, "data", "", "data folder of the stopped server")
	cmd.Flags().BoolVar(&snapshotOnly, "snapshot-only", false, "leave out what the log has behind the newest snapshot")
	return cmd
}

// extraction is the state that a folder has.
type extraction struct {
	state *state.State
	term  uint64
}

// extract reads the state of a stopped server.
func (a *app) extract(ctx context.Context, dir string, snapshotOnly bool) (*extraction, error) {
	snapshots, err := replica.ReadSnapshots(dir)
	if err != nil {
		return nil, err
	}
	if len(snapshots) == 0 && snapshotOnly {
		return nil, fmt.Errorf("%s has no snapshot", dir)
	}
	if len(snapshots) == 0 {
		snapshots = append(snapshots, replica.StoredSnapshot{}) // the log begins with its first entry
	}
	for _, s := range slices.Backward(snapshots) {
		var x *extraction
		if x, err = a.extractFrom(ctx, dir, s, snapshots, snapshotOnly); !errors.Is(err, state.ErrSnapshotCorrupt) && !errors.Is(err, state.ErrNotSnapshot) {
			return x, err
		}
		a.say("the snapshot of entry %d is damaged: %v", s.Index, err)
	}
	return nil, fmt.Errorf("no snapshot in %s can be read; take the folder of another server: %w", dir, err)
}

// extractFrom reads a snapshot, and the log behind it.
func (a *app) extractFrom(ctx context.Context, dir string, s replica.StoredSnapshot, all []replica.StoredSnapshot, snapshotOnly bool) (*extraction, error) {
	tail := &replica.StoredTail{Index: s.Index, Term: s.Term}
	if !snapshotOnly {
		var err error
		if tail, err = replica.ReadTail(dir, s, all); err != nil {
			return nil, logError(dir, err)
		}
		if tail.Lost > 0 {
			a.say("this disk has lost entries: its log had reached %d, and has entries up to %d", tail.Lost, tail.Index)
		}
	}
	m := fsm.New(fsm.Options{})
	if s.Path != "" {
		f, err := os.Open(filepath.Clean(s.Path))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", state.ErrSnapshotCorrupt, err)
		}
		if err != nil {
			return nil, err
		}
		err = m.Restore(f) // it closes f
		if isBeforeLevels(err) && len(tail.Commands) == 0 {
			return beforeLevels(s)
		}
		if err != nil {
			return nil, whyBeyond(err, tail)
		}
	}
	for _, c := range tail.Commands {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := m.ApplyData(c.Index, c.Term, c.Command); err != nil {
			return nil, fmt.Errorf("the log in %s cannot be applied: entry %d: %w", dir, c.Index, whyBeyond(err, tail))
		}
	}
	if !m.Bootstrapped() {
		return nil, fmt.Errorf("%w: %s", replica.ErrNothing, dir)
	}
	return &extraction{m.Fork(), tail.Term}, nil
}

// isBeforeLevels reports whether a build from before feature levels wrote what a state machine refuses.
func isBeforeLevels(err error) bool {
	beyond := (*state.Beyond)(nil)
	return errors.As(err, &beyond) && beyond.Level < state.LevelMin
}

// beforeLevels reads a snapshot of such a build. The state gets the oldest level that this build knows: its rows mean the
// same, and only decisions differ, of which the new cluster makes its own.
func beforeLevels(s replica.StoredSnapshot) (*extraction, error) {
	f, err := os.Open(filepath.Clean(s.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := state.Restore(f)
	if err != nil {
		return nil, err
	}
	m := *st.Meta()
	m.Level = state.LevelMin
	st.SetMeta(m)
	return &extraction{st, s.Term}, nil
}

// whyBeyond says what to do about a log of a build from before feature levels.
func whyBeyond(err error, tail *replica.StoredTail) error {
	if !isBeforeLevels(err) {
		return err
	}
	return fmt.Errorf("it has %s of a build from before feature levels behind the newest snapshot, and this build decides differently: "+
		`start the old build again, let it write a snapshot with "rota operator raft snapshot", and stop it at once; `+
		"or add --snapshot-only to leave them out", plural(len(tail.Commands), "command"))
}

// check checks what a restore would check.
func (x *extraction) check() error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(x.state.Save(w)) }()
	_, err := fsm.RestoreBackup(r)
	return errors.Join(err, r.Close())
}

// save writes the state to a path.
func (x *extraction) save(ctx context.Context, path string) (*backup.File, error) {
	if err := x.check(); err != nil {
		return nil, err
	}
	m := x.state.Meta()
	w, err := backup.Create(path, &rotav1.BackupHeader{
		ClusterId: m.ClusterID, Index: m.Applied, Term: x.term, FeatureLevel: uint32(m.Level), Release: m.Release,
		Hash: fmt.Sprintf("%016x", x.state.Hash()), Time: timestamppb.Now(), Version: Version,
	})
	if err != nil {
		return nil, err
	}
	sum, n := sha256.New(), &written{ctx: ctx}
	if err := x.state.Save(io.MultiWriter(w, sum, n)); err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	return finishBackup(w, path, &rotav1.BackupTrailer{Bytes: n.bytes, Sha256: sum.Sum(nil)})
}

// written counts bytes until its context ends.
type written struct {
	ctx   context.Context
	bytes uint64
}

func (w *written) Write(p []byte) (int, error) {
	w.bytes += uint64(len(p))
	return len(p), w.ctx.Err()
}
