package fsm

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
	"rota/sched/schedtest"
)

const nextLevel = state.LevelMax + 1

// build is a machine that knows the feature levels up to one, and why it has stopped.
type build struct {
	*Machine
	stopped error
}

func newBuild(level state.Level) *build {
	b := &build{}
	b.Machine = New(Options{Deciders: schedtest.Deciders(level), OnFatal: func(err error) { b.stopped = err }})
	return b
}

func (b *build) do(t rapid.TB, index uint64, lines ...string) {
	t.Helper()
	var commands []*logv1.Command
	for _, line := range lines {
		commands = append(commands, parseCommand(t, line)...)
	}
	b.Apply(entryLog(t, index, int64(index), commands...))
}

func bootstrapBy(level state.Level) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", Level: uint32(level), Release: "r"}}}
}

func activation(level state.Level) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: uint32(level), Release: "r"}}}
}

func (b *build) level() (l state.Level) {
	b.View(func(s *state.State) { l = s.Meta().Level })
	return l
}

// TestHistoryKeepsItsMeaning: a log means the same to a build that knows a newer
// level, from its first entry on, until that level is raised; from there on its scheduler
// decides, in the same entry already, and the older build stops.
func TestHistoryKeepsItsMeaning(t *testing.T) {
	older, newer, fresh := newBuild(state.LevelMax), newBuild(nextLevel), newBuild(nextLevel+1)
	story := func(b *build, activate bool) {
		b.Apply(entryLog(t, 1, 1, bootstrapBy(0)))
		b.do(t, 2, "register node=n1 numa=4+4 memory=1000", "register node=n2 numa=4+4 memory=1000")
		b.do(t, 3, "submit n=2 cores=1")
		c := parseCommand(t, "submit cores=1")
		if activate {
			c = append(c, activation(nextLevel))
		}
		b.Apply(entryLog(t, 4, 4, c...))
	}
	before := func(b *build) uint64 { story(b, false); _, hash := b.Hash(); return hash }
	if a, b := before(newBuild(state.LevelMax)), before(newBuild(nextLevel)); a != b {
		t.Errorf("without an activation the hash is %016x, and %016x in a newer build", a, b)
	}
	for _, b := range []*build{older, newer, fresh} {
		story(b, true)
	}
	if older.stopped == nil || !strings.Contains(older.stopped.Error(), "upgrade this server to r") || older.level() != levelUnsaid {
		t.Errorf("the older build has stopped with %v, level %d is active", older.stopped, older.level())
	}
	if newer.stopped != nil || newer.level() != nextLevel {
		t.Errorf("the newer build has stopped with %v, level %d is active", newer.stopped, newer.level())
	}
	_, a := newer.Hash()
	if _, b := fresh.Hash(); a != b {
		t.Errorf("two builds that know the level have the hashes %016x and %016x", a, b)
	}
	newer.View(func(s *state.State) {
		cores := s.Attempt(s.Action(3).Node, 3).Cores
		if !cores.Has(3) && !cores.Has(7) {
			t.Errorf("action 3 has cores %v: the new scheduler would have taken the last", cores.Slice())
		}
	})
}

// TestBootstrapSaysTheLevel: not the build that applies it, but the one that proposed it.
func TestBootstrapSaysTheLevel(t *testing.T) {
	for _, c := range []struct {
		name        string
		said, knows state.Level
		want        state.Level
		stops       bool
	}{
		{"nothing said", 0, state.LevelMin, 2, false},
		{"nothing said, a newer build", 0, nextLevel, 2, false},
		{"by an older build", state.LevelMin, nextLevel, state.LevelMin, false},
		{"by the same build", nextLevel, nextLevel, nextLevel, false},
		{"by a newer build", nextLevel + 1, nextLevel, 0, true},
		{"by a build from before levels", 1, nextLevel, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuild(c.knows)
			b.Apply(entryLog(t, 1, 1, bootstrapBy(c.said)))
			if b.level() != c.want || (b.stopped != nil) != c.stops {
				t.Errorf("level %d is active, stopped with %v; want %d and %v", b.level(), b.stopped, c.want, c.stops)
			}
		})
	}
}

// TestSnapshotOfANewerLevelStopsTheReplica: the entry that raised the level
// may be behind a snapshot, and what follows cannot be applied all the same.
func TestSnapshotOfANewerLevelStopsTheReplica(t *testing.T) {
	newer := newBuild(nextLevel)
	newer.Apply(entryLog(t, 1, 1, bootstrapBy(0)))
	newer.Apply(entryLog(t, 2, 2, activation(nextLevel)))
	var sink bytes.Buffer
	if err := newer.Fork().Save(&sink); err != nil {
		t.Fatal(err)
	}
	for _, knows := range []state.Level{state.LevelMax, nextLevel} {
		b := newBuild(knows)
		err := b.Restore(io.NopCloser(bytes.NewReader(sink.Bytes())))
		if stops := knows < nextLevel; (err != nil) != stops || (b.stopped != nil) != stops {
			t.Errorf("a build that knows up to %d restores with %v and stops with %v", knows, err, b.stopped)
		}
		if _, err := b.ApplyData(3, 0, nil); (err != nil) != (knows < nextLevel) {
			t.Errorf("a build that knows up to %d applies the next entry with %v", knows, err)
		}
	}
}

// TestAdaptingNeedsItsLevel: before the level is active, a command with a field of it is refused,
// and reports come without what only that level knows.
func TestAdaptingNeedsItsLevel(t *testing.T) {
	b := newBuild(state.LevelMax)
	b.Apply(entryLog(t, 1, 1, bootstrapBy(state.LevelMin)))
	refusals := func(index uint64, lines ...string) (reasons []string) {
		var commands []*logv1.Command
		for _, line := range lines {
			commands = append(commands, parseCommand(t, line)...)
		}
		for _, r := range b.Apply(entryLog(t, index, int64(index), commands...)).([]*logv1.Result) {
			reasons = append(reasons, r.GetRefusal().GetReason())
		}
		return reasons
	}
	lines := []string{"quota name=q kind=concurrency limit=2 adaptive=yes", "update-quota name=q adaptive=no", "report node=n1 action=1 throttled=yes", "report node=n1 action=1 usage=q:3"}
	for i, reason := range refusals(2, lines...) {
		if reason != "LEVEL_NOT_ACTIVE" {
			t.Errorf("%s: refused with %q", lines[i], reason)
		}
	}
	for _, line := range lines[2:] {
		report := parseCommand(t, line)[0]
		Suit(report.GetReportAttempts(), state.LevelMin)
		if since(report) != state.LevelMin {
			t.Errorf("a report that suits level %d needs level %d", state.LevelMin, since(report))
		}
	}
	b.Apply(entryLog(t, 3, 3, activation(state.LevelMax)))
	if reasons := refusals(4, lines[0], lines[1]); reasons[0] != "" || reasons[1] != "" {
		t.Errorf("with the level, refused with %q", reasons)
	}
	report := parseCommand(t, lines[2])[0]
	if Suit(report.GetReportAttempts(), state.LevelMax); !report.GetReportAttempts().Reports[0].Throttled {
		t.Error("a report loses what the level knows")
	}
	report = parseCommand(t, lines[3])[0]
	if Suit(report.GetReportAttempts(), state.LevelMax); len(report.GetReportAttempts().Reports[0].Usage) != 1 {
		t.Error("a report loses what the level knows that it used")
	}
}

// TestHooksNeedTheirLevel: an action of a hook may have what only a level knows, as any other.
func TestHooksNeedTheirLevel(t *testing.T) {
	for _, x := range []struct {
		action *logv1.Action
		want   state.Level
	}{
		{&logv1.Action{CoresMin: 1}, state.LevelMin},
		{&logv1.Action{Fixed: true}, sched.LevelResizing},
		{&logv1.Action{Labels: []*logv1.Label{{Key: "a"}}}, sched.LevelResizing},
	} {
		job := &logv1.SubmitJob{Hooks: []*logv1.DeploymentHooks{{}, {Wake: x.action}}}
		if got := since(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: job}}); got != x.want {
			t.Errorf("%v needs level %d, want %d", x.action, got, x.want)
		}
	}
}
