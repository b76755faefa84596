package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
first. If commands are behind the snapshot all the same, the command fails. With --snapshot-only it leaves them out.`,
		Example: "  rota operator snapshot extract --data /var/lib/rota rota.backup\n" +
			"  rota operator snapshot extract --data /var/lib/rota --snapshot-only rota.backup",
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				return usageErrorf("give --data DIR, the data folder of a stopped server")
			}
			x, err := extract(cmd.Context(), dir, snapshotOnly)
			if err != nil {
				return err
			}
			if x.left > 0 {
				a.say("left out, as the newest snapshot lacks them: %s", plural(x.left, "command"))
			}
			saved, err := saveTo(cmd.Context(), args[0], func(_ context.Context, path string) (*backup.File, error) { return x.save(path) })
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
	// left counts the commands behind the snapshot that are not in the state.
	left int
}

// extract reads the state of a stopped server.
func extract(ctx context.Context, dir string, snapshotOnly bool) (*extraction, error) {
	entries, err := readEntries(dir)
	if err != nil {
		return nil, err
	}
	snapshot, err := newest(dir)
	if err != nil {
		return nil, err
	}
	x := &extraction{term: snapshot.Term}
	behind, err := commandsBehind(entries, snapshot.Index)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if snapshot.Path != "" {
		if err := x.read(snapshot.Path); err != nil {
			return nil, fmt.Errorf("the snapshot in %s cannot be read; take the folder of another server: %w", dir, err)
		}
	}
	if snapshotOnly || len(behind) == 0 {
		x.left = len(behind)
	} else if err := x.apply(ctx, snapshot.Path, behind); err != nil {
		return nil, fmt.Errorf("the log in %s cannot be applied: %w", dir, err)
	}
	if x.state == nil || x.state.Meta().ClusterID == "" {
		return nil, fmt.Errorf("%w: %s", replica.ErrNothing, dir)
	}
	return x, nil
}

// newest returns the newest snapshot of a folder; its path is empty if there is none.
func newest(dir string) (s replica.StoredSnapshot, err error) {
	all, err := replica.ReadSnapshots(dir)
	if err == nil && len(all) > 0 {
		s = all[len(all)-1]
	}
	return s, err
}

// commandsBehind returns the commands behind an index. No entry may be missing there.
func commandsBehind(entries []replica.StoredEntry, index uint64) (commands []replica.StoredEntry, err error) {
	next := index + 1
	for _, e := range entries {
		if e.Index < next {
			continue
		}
		if e.Index != next {
			return nil, fmt.Errorf("entries %d to %d are missing: take the folder of another server", next, e.Index-1)
		}
		next++
		if e.Command != nil {
			commands = append(commands, e)
		}
	}
	return commands, nil
}

// read reads a snapshot. A state from before feature levels gets the oldest level that this build knows: its rows mean
// the same, and only decisions differ, of which the new cluster makes its own.
func (x *extraction) read(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer f.Close()
	if x.state, err = state.Restore(f); err != nil {
		return err
	}
	if m := *x.state.Meta(); m.Level < state.LevelMin {
		m.Level = state.LevelMin
		x.state.SetMeta(m)
	}
	return nil
}

// apply goes on from the snapshot with commands.
func (x *extraction) apply(ctx context.Context, snapshot string, commands []replica.StoredEntry) error {
	m := fsm.New(fsm.Options{})
	if snapshot != "" {
		f, err := os.Open(filepath.Clean(snapshot))
		if err != nil {
			return err
		}
		if err := m.Restore(f); err != nil { // it closes f
			return beforeLevels(err, len(commands))
		}
	}
	for _, c := range commands {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := m.ApplyData(c.Index, c.Term, c.Command); err != nil {
			return fmt.Errorf("entry %d: %w", c.Index, beforeLevels(err, len(commands)))
		}
		x.term = c.Term
	}
	x.state = m.Fork()
	return nil
}

// beforeLevels says what to do about a log of a build before feature levels.
func beforeLevels(err error, commands int) error {
	if beyond := (*state.Beyond)(nil); !errors.As(err, &beyond) || beyond.Level >= state.LevelMin {
		return err
	}
	return fmt.Errorf("it has %s of a build before feature levels behind the newest snapshot, and this build decides differently: "+
		`start the old build again, let it write a snapshot with "rota operator raft snapshot", and stop it at once; `+
		"or add --snapshot-only to leave them out", plural(commands, "command"))
}

// save writes the state to a path.
func (x *extraction) save(path string) (*backup.File, error) {
	m := x.state.Meta()
	w, err := backup.Create(path, &rotav1.BackupHeader{
		ClusterId: m.ClusterID, Index: m.Applied, Term: x.term, FeatureLevel: uint32(m.Level), Release: m.Release,
		Hash: fmt.Sprintf("%016x", x.state.Hash()), Time: timestamppb.Now(), Version: Version,
	})
	if err != nil {
		return nil, err
	}
	sum, n := sha256.New(), &written{}
	if err := x.state.Save(io.MultiWriter(w, sum, n)); err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	return finishBackup(w, path, &rotav1.BackupTrailer{Bytes: n.bytes, Sha256: sum.Sum(nil)})
}

// written counts bytes.
type written struct{ bytes uint64 }

func (w *written) Write(p []byte) (int, error) {
	w.bytes += uint64(len(p))
	return len(p), nil
}
