package entry

import (
	"testing"

	logv1 "rota/api/gen/log/v1"
)

const second = 1_000_000_000

// batchOf is the batch of one proposal.
func batchOf(term uint64, commands ...*logv1.Command) Batch[string] {
	return Batch[string]{NewProposal("a", term, commands, 1)}
}

// An entry names the term of its leadership, which refuses what another has accepted.
func TestForm(t *testing.T) {
	s := NewStamp(3, WallFloor)
	m := Moment{Elapsed: second, Committed: WallFloor, Wall: 5}
	for _, term := range []uint64{0, 2, 4} {
		if e := Form(batchOf(term, named("x")...), s, m); e != nil {
			t.Errorf("what was accepted in term %d becomes an entry of term %d", term, e.Term)
		}
	}
	e := Form(batchOf(3, named("x", "y")...), s, m)
	if e == nil || e.Term != 3 || len(e.Commands) != 2 || e.TimeNs != WallFloor+second || e.WallNs != 5 {
		t.Errorf("the entry is %v", e)
	}
}

// Log time starts at the wall clock of the leader that founds the cluster, and then
// follows only monotonic clocks.
func TestLogTime(t *testing.T) {
	found := &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{}}}
	other := named("x")[0]
	const founded = 1_800_000_000 * second
	first, unset, next := NewStamp(1, 0), NewStamp(1, 0), NewStamp(2, founded)
	for _, step := range []struct {
		what      string
		stamp     *Stamp
		command   *logv1.Command
		elapsed   int64
		committed int64
		wall      int64
		want      int64
	}{
		{"before the cluster is founded", first, other, 4 * second, 0, founded - second, 4 * second},
		{"founded", first, found, 5 * second, 0, founded, founded},
		{"a second later", first, other, 6 * second, founded, founded + second, founded + second},
		{"the wall clock goes back", first, other, 6 * second, founded, founded - 100*second, founded + second},
		{"its own clock goes back", first, other, 0, founded, founded, founded + second},
		{"an entry of a faster leader", first, other, 7 * second, founded + 100*second, founded, founded + 100*second},
		{"the next leader is told to found the cluster again", next, found, second, founded, founded - 100*second, founded + second},
		{"founded with a wall clock that was never set", unset, found, 5 * second, 0, 0, 0},
	} {
		e := Form(batchOf(step.stamp.term, step.command), step.stamp, Moment{step.elapsed, step.committed, step.wall})
		if e.TimeNs != step.want {
			t.Errorf("%s: log time %d, want %d", step.what, e.TimeNs, step.want)
		}
	}
}
