package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// TestBothNodesAreToldOfAMigration: when it starts and when it ends, and not while it waits.
func TestBothNodesAreToldOfAMigration(t *testing.T) {
	s := newStory(t)
	for _, step := range []struct {
		line string
		want []string
	}{
		{"register node=n1 numa=4 cache=1", []string{"n1"}},
		{"register node=n2 numa=4 cache=1", []string{"n2"}},
		{"register node=n3 numa=4 cache=1", []string{"n3"}},
		{"migrate from=n1 to=n2", []string{"n1", "n2"}},
		{"migrate from=n3 to=n2", nil},
		{"migration-report node=n2 inc=2 id=1 done=yes", []string{"n1", "n2", "n3"}},
		{"migration-report node=n2 inc=2 id=1 done=yes", nil},
		{"cancel-migration id=2", []string{"n2", "n3"}},
	} {
		if got := s.told(t, step.line); !slices.Equal(got, step.want) {
			t.Errorf("%s: nodes %v are told, want %v", step.line, got, step.want)
		}
	}
}

// TestMigrationsAreBounded: in number, in the bytes of their selectors, and of those that have
// ended the newest are kept.
func TestMigrationsAreBounded(t *testing.T) {
	s := newStory(t)
	s.told(t, "register node=n1 numa=4 cache=1")
	s.told(t, "register node=n2 numa=4 cache=1")
	request := func(selector string) *logv1.Result {
		s.index++
		line := "migrate from=n1 to=n2 selector=" + selector
		next, results, _ := apply(s.state.Copy, s.index, &logv1.Entry{TimeNs: s.now, Commands: parseCommand(t, line)}, sched.Deciders(), nil)
		s.state = next
		return results[0]
	}
	big := strings.Repeat("x", state.SelectorBytesMax)
	for range state.SelectorsBytesMax / state.SelectorBytesMax {
		if r := request(big).Refusal; r != nil {
			t.Fatal(r)
		}
	}
	if r := request("x").Refusal; r == nil || r.Reason != "TOO_MANY_MIGRATIONS" {
		t.Errorf("a byte more: %v", r)
	}
	if r := request(big + "x").Refusal; r == nil || r.Reason != "INVALID" {
		t.Errorf("a selector that is too long: %v", r)
	}
	s.told(t, "cancel-migration id=1")
	for i := 2; s.state.MigrationCounts().Ended < state.MigrationsKeptMax; i++ {
		s.now++
		if s.state.Migration(state.MigrationID(i)) == nil {
			request("x")
		}
		s.told(t, fmt.Sprintf("cancel-migration id=%d", i))
	}
	request("x")
	s.now++
	s.told(t, fmt.Sprintf("cancel-migration id=%d", s.state.Meta().LastMigration))
	if c := s.state.MigrationCounts(); c != (state.MigrationCounts{Ended: state.MigrationsKeptMax}) || s.state.Migration(1) != nil || s.state.Migration(2) == nil {
		t.Errorf("%+v are kept, with the first: %v, the second: %v", c, s.state.Migration(1) != nil, s.state.Migration(2) != nil)
	}
	if err := s.state.Check(); err != nil {
		t.Error(err)
	}
}

// TestMigrationsNeedTheirLevel: before it is active, all is refused, and a node has no cache.
func TestMigrationsNeedTheirLevel(t *testing.T) {
	b := newBuild(state.LevelMax)
	b.Apply(entryLog(t, 1, 1, bootstrapBy(state.LevelMin)))
	b.Apply(entryLog(t, 2, 2, parseCommand(t, "register node=n1 numa=1 cache=5")...))
	for i, line := range []string{"migrate from=n1 to=n2", "cancel-migration id=1", "migration-report node=n1 inc=1 id=1"} {
		index := uint64(i) + 3
		for _, r := range b.Apply(entryLog(t, index, int64(index), parseCommand(t, line)...)).([]*logv1.Result) {
			if r.GetRefusal().GetReason() != "LEVEL_NOT_ACTIVE" {
				t.Errorf("%s: %v", line, r)
			}
		}
	}
	b.View(func(s *state.State) {
		if s.NodeByName("n1").CacheBytes != 0 {
			t.Error("the row of the node has a field of level 3")
		}
	})
}
