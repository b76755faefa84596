package fsm

import (
	"bytes"
	"io"
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/schedtest"
)

const nextVersion = sched.Version + 1

// build is a machine that knows the versions of the scheduler up to one, and why
// it has stopped.
type build struct {
	*Machine
	stopped error
}

func newBuild(version uint32) *build {
	b := &build{}
	b.Machine = New(Options{Schedulers: schedtest.Versions(version), OnFatal: func(err error) { b.stopped = err }})
	return b
}

func (b *build) do(t *testing.T, index uint64, lines ...string) {
	t.Helper()
	var commands []*logv1.Command
	for _, line := range lines {
		commands = append(commands, parseCommand(t, line)...)
	}
	b.Apply(entryLog(t, index, int64(index), commands...))
}

func bootstrapBy(version uint32) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", SchedulerVersion: version}}}
}

func activation(version uint32) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ActivateScheduler{ActivateScheduler: &logv1.ActivateScheduler{Version: version}}}
}

func (b *build) version() (v uint32) {
	b.View(func(s *state.State) { v = s.Meta().SchedulerVersion })
	return v
}

// TestHistoryKeepsItsMeaning: a log means the same to a build that knows a newer
// version, from its first entry on, until that version is activated; from there on
// it decides, in the same entry already, and the older build stops.
func TestHistoryKeepsItsMeaning(t *testing.T) {
	older, newer, fresh := newBuild(sched.Version), newBuild(nextVersion), newBuild(nextVersion+1)
	story := func(b *build, activate bool) {
		b.Apply(entryLog(t, 1, 1, bootstrapBy(0)))
		b.do(t, 2, "register node=n1 numa=4+4 memory=1000", "register node=n2 numa=4+4 memory=1000")
		b.do(t, 3, "submit n=2 cores=1")
		c := parseCommand(t, "submit cores=1")
		if activate {
			c = append(c, activation(nextVersion))
		}
		b.Apply(entryLog(t, 4, 4, c...))
	}
	before := func(b *build) uint64 { story(b, false); _, hash := b.Hash(); return hash }
	if a, b := before(newBuild(sched.Version)), before(newBuild(nextVersion)); a != b {
		t.Errorf("without an activation the hash is %016x, and %016x in a newer build", a, b)
	}
	for _, b := range []*build{older, newer, fresh} {
		story(b, true)
	}
	if older.stopped == nil || !strings.Contains(older.stopped.Error(), "upgrade this server") || older.version() != 1 {
		t.Errorf("the older build has stopped with %v, version %d is active", older.stopped, older.version())
	}
	if newer.stopped != nil || newer.version() != nextVersion {
		t.Errorf("the newer build has stopped with %v, version %d is active", newer.stopped, newer.version())
	}
	_, a := newer.Hash()
	if _, b := fresh.Hash(); a != b {
		t.Errorf("two builds that know the version have the hashes %016x and %016x", a, b)
	}
	newer.View(func(s *state.State) {
		cores := s.Attempt(s.Action(3).Node, 3).Cores
		if !cores.Has(3) && !cores.Has(7) {
			t.Errorf("action 3 has cores %v: the new version would have taken the last", cores.Slice())
		}
	})
}

// TestBootstrapSaysTheVersion: not the build that applies it, but the one that
// proposed it; those that wrote nothing knew version 1 only.
func TestBootstrapSaysTheVersion(t *testing.T) {
	for _, c := range []struct {
		name        string
		said, knows uint32
		want        uint32
		stops       bool
	}{
		{"nothing said, an old build", 0, 1, 1, false},
		{"nothing said, a newer build", 0, nextVersion, 1, false},
		{"by an older build", 1, nextVersion, 1, false},
		{"by the same build", nextVersion, nextVersion, nextVersion, false},
		{"by a newer build", nextVersion + 1, nextVersion, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuild(c.knows)
			b.Apply(entryLog(t, 1, 1, bootstrapBy(c.said)))
			if b.version() != c.want || (b.stopped != nil) != c.stops {
				t.Errorf("version %d is active, stopped with %v; want %d and %v", b.version(), b.stopped, c.want, c.stops)
			}
		})
	}
}

// TestSnapshotOfANewerVersionStopsTheReplica: the entry that activated a version
// may be behind a snapshot, and what follows cannot be applied all the same.
func TestSnapshotOfANewerVersionStopsTheReplica(t *testing.T) {
	newer := newBuild(nextVersion)
	newer.Apply(entryLog(t, 1, 1, bootstrapBy(0)))
	newer.Apply(entryLog(t, 2, 2, activation(nextVersion)))
	var sink bytes.Buffer
	if err := newer.Fork().Save(&sink); err != nil {
		t.Fatal(err)
	}
	for _, knows := range []uint32{sched.Version, nextVersion} {
		b := newBuild(knows)
		err := b.Restore(io.NopCloser(bytes.NewReader(sink.Bytes())))
		if stops := knows < nextVersion; (err != nil) != stops || (b.stopped != nil) != stops {
			t.Errorf("a build that knows up to %d restores with %v and stops with %v", knows, err, b.stopped)
		}
		if _, err := b.ApplyData(3, 0, nil); (err != nil) != (knows < nextVersion) {
			t.Errorf("a build that knows up to %d applies the next entry with %v", knows, err)
		}
	}
}
