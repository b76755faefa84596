package fsm

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// restoring is a cluster that goes on from a backup.
type restoring struct {
	*testing.T
	m     *Machine
	index uint64
	ns    int64
}

func newRestoring(t *testing.T, id string) *restoring {
	r := &restoring{T: t, m: New(Options{})}
	r.do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: id, Level: uint32(state.LevelMax)}}})
	return r
}

// do applies an entry and returns the result of its last command.
func (r *restoring) do(c ...*logv1.Command) *logv1.Result {
	r.Helper()
	r.index, r.ns = r.index+1, r.ns+1e6
	results, _ := r.m.Apply(entryLog(r.T, r.index, r.ns, c...)).([]*logv1.Result)
	if len(results) != len(c) {
		r.Fatalf("entry %d: %d results", r.index, len(results))
	}
	r.check()
	if len(results) == 0 {
		return nil
	}
	return results[len(results)-1]
}

func (r *restoring) lines(lines ...string) *logv1.Result {
	r.Helper()
	var c []*logv1.Command
	for _, l := range lines {
		c = append(c, parseCommand(r.T, l)...)
	}
	return r.do(c...)
}

func (r *restoring) check() {
	r.Helper()
	r.m.View(func(s *state.State) {
		if err := s.Check(); err != nil {
			r.Fatalf("entry %d: %v", r.index, err)
		}
	})
}

func (r *restoring) backup() []byte {
	var b bytes.Buffer
	if err := r.m.Fork().Save(&b); err != nil {
		r.Fatal(err)
	}
	return b.Bytes()
}

// upload stages a backup in parts of so many bytes and returns how many there are.
func (r *restoring) upload(id string, backup []byte, size int) (parts uint32) {
	r.Helper()
	for data := range slices.Chunk(backup, size) {
		got := r.do(&logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: &logv1.StageRestore{Id: id, Number: parts, Data: data}}})
		if got.Refusal != nil {
			r.Fatalf("part %d: %v", parts, got.Refusal)
		}
		parts++
	}
	return parts
}

func commitOf(id string, parts uint32, backup []byte, force bool) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_CommitRestore{CommitRestore: &logv1.CommitRestore{
		Id: id, Parts: parts, Sum: xxhash.Sum64(backup), Force: force,
	}}}
}

// TestRestoreFencesWhatRan: what ran when the backup was made is lost, once, and starts again
// under an incarnation that the old cluster can never have given out. What waited still does.
func TestRestoreFencesWhatRan(t *testing.T) {
	old := newRestoring(t, "old")
	node := "register node=n1 numa=2 inc=0"
	was := old.lines(node).Incarnation
	old.lines("submit n=5 attempts=3")
	backup := old.backup()
	running, queued := counts(old.m)
	if running == 0 || queued == 0 {
		t.Fatalf("%d run and %d wait: the backup shows nothing", running, queued)
	}
	var before state.Meta
	old.m.View(func(s *state.State) { before = *s.Meta() })

	r := newRestoring(t, "new")
	r.lines(node)
	parts := r.upload("u", backup, 100)
	snapshot := r.backup() // a server that restarts has the parts
	r.m = New(Options{})
	if err := r.m.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
		t.Fatal(err)
	}
	got := r.do(commitOf("u", parts, backup, false))
	if got.Refusal != nil || int(got.Count) != running {
		t.Fatalf("restored with %v, must have lost %d attempts", got, running)
	}
	if again := r.do(commitOf("u", parts, backup, false)); !again.Replayed {
		t.Errorf("a repetition was answered %v", again)
	}
	for range 5 {
		r.do()
	}
	if now, waits := counts(r.m); now != 0 || waits != running+queued {
		t.Errorf("%d run and %d wait, must be 0 and %d", now, waits, running+queued)
	}
	r.m.View(func(s *state.State) {
		m := s.Meta()
		if m.ClusterID != "new" || m.Origin.Cluster != "old" || m.Origin.Index != before.Applied || s.RestorePartCount() != 0 {
			t.Errorf("the state is of %+v, and has %d parts", m.Origin, s.RestorePartCount())
		}
		if m.LastAction <= before.LastAction || m.LastToken <= before.LastToken || m.Revision <= before.Revision {
			t.Errorf("numbers may be given out twice: %+v after %+v", m, before)
		}
		if n := s.NodeByName("n1"); n.State != state.NodeDown {
			t.Errorf("node n1 is %v", n.State)
		}
	})
	is := r.lines(node).Incarnation
	if is <= was+1<<40 {
		t.Errorf("the incarnation was %d and is %d", was, is)
	}
	if now, _ := counts(r.m); now != running {
		t.Errorf("%d run on the node that came back, must be %d", now, running)
	}
}

func counts(m *Machine) (running, queued int) {
	m.View(func(s *state.State) { running, queued = s.Counts().Running, s.Counts().Queued })
	return running, queued
}

// TestRestoreIsRefused: into a cluster in use, of parts that are missing or damaged.
func TestRestoreIsRefused(t *testing.T) {
	old := newRestoring(t, "old")
	old.lines("submit n=1")
	backup := old.backup()
	r := newRestoring(t, "new")
	refusal := func(want string, c *logv1.Command) {
		t.Helper()
		if got := r.do(c).Refusal.GetReason(); got != want {
			t.Errorf("refused with %q, must be %q", got, want)
		}
	}
	part := func(id string, n uint32, data []byte) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: &logv1.StageRestore{Id: id, Number: n, Data: data}}}
	}
	refusal("RESTORE_SUPERSEDED", part("u", 1, []byte("x")))
	refusal("INVALID", part("u", 1, nil))
	refusal("INVALID", part("", 0, []byte("x")))
	refusal("INVALID", part("u", 0, make([]byte, state.RestorePartBytesMax+1)))
	refusal("INVALID", part(strings.Repeat("u", state.UploadBytesMax+1), 0, []byte("x")))
	parts := r.upload("u", backup, 64)
	refusal("RESTORE_INCOMPLETE", commitOf("u", parts+1, backup, false))
	refusal("RESTORE_INCOMPLETE", commitOf("v", parts, backup, false))
	refusal("RESTORE_INCOMPLETE", commitOf("u", parts, backup[1:], false))
	damaged := slices.Clone(backup)
	damaged[len(damaged)/2] ^= 1
	refusal("", part("another", 0, nil))
	r.m.View(func(s *state.State) {
		if n := s.RestorePartCount(); n != int(parts) {
			t.Errorf("%d parts are kept of %d: another upload was dropped", n, parts)
		}
	})
	refusal("RESTORE_INCOMPLETE", commitOf("u", parts, damaged, false))
	refusal("", part("u", 0, nil))
	r.m.View(func(s *state.State) {
		if n := s.RestorePartCount(); n != 0 {
			t.Errorf("%d parts are kept of an upload that was dropped", n)
		}
	})
	parts = r.upload("w", damaged, 64)
	refusal("BACKUP_UNUSABLE", commitOf("w", parts, damaged, false))
	parts = r.upload("x", backup, 64)
	r.lines("submit n=1")
	refusal("CLUSTER_IN_USE", commitOf("x", parts, backup, false))
	refusal("CLUSTER_IN_USE", part("y", 0, []byte("x")))
	refusal("", commitOf("x", parts, backup, true))
}

// TestDeclaredClusterIsInUse: what was declared by a name is in the way of a restore too.
func TestDeclaredClusterIsInUse(t *testing.T) {
	for name, c := range map[string]*logv1.Command{
		"access policy": {Verb: &logv1.Command_PutAccessPolicy{PutAccessPolicy: &logv1.PutAccessPolicy{Name: "p", Spec: []byte("x")}}},
		"reward":        parseCommand(t, "reward name=f")[0],
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestoring(t, "new")
			r.m.View(func(s *state.State) {
				if !s.Unused() {
					t.Fatal("a new cluster is in use")
				}
			})
			if got := r.do(c); got.Refusal != nil {
				t.Fatal(got.Refusal)
			}
			got := r.do(&logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: &logv1.StageRestore{Id: "u", Data: []byte("x")}}})
			if got.Refusal.GetReason() != "CLUSTER_IN_USE" {
				t.Errorf("a part of a backup was answered %v", got)
			}
		})
	}
}

// TestRecoveredStateIsAnotherCluster: its numbers are never those that the lost majority
// gave out.
func TestRecoveredStateIsAnotherCluster(t *testing.T) {
	r := newRestoring(t, "old")
	was := r.lines("register node=n1 numa=2 inc=0").Incarnation
	r.lines("submit n=1")
	refound := func(id string) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_Refound{Refound: &logv1.Refound{ClusterId: id, Index: r.index, Term: 1}}}
	}
	if got := r.do(refound("old")); got.Refusal.GetReason() != "INVALID" {
		t.Errorf("the same ID again: %v", got)
	}
	if got := r.do(refound("new")); got.Refusal != nil || got.Count != 1 {
		t.Fatalf("recovered with %v", got)
	}
	if is := r.lines("register node=n1 numa=2 inc=0").Incarnation; is <= was+1<<40 {
		t.Errorf("the incarnation was %d and is %d", was, is)
	}
}
