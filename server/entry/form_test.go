package entry

import (
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
)

// batchOf is the batch of one proposal.
func batchOf(term uint64, commands ...*logv1.Command) Batch[string] {
	return Batch[string]{NewProposal("a", term, commands, 1)}
}

// An entry names the term of its leadership, which refuses what another has accepted.
func TestForm(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	s := NewStamp(3, WallFloor, begin)
	m := Moment{Now: begin.Add(time.Second), Committed: WallFloor, WallNS: 5}
	for _, term := range []uint64{0, 2, 4} {
		if e := Form(batchOf(term, named("x")...), s, m); e != nil {
			t.Errorf("what was accepted in term %d becomes an entry of term %d", term, e.Term)
		}
	}
	e := Form(batchOf(3, named("x", "y")...), s, m)
	if e == nil || e.Term != 3 || len(e.Commands) != 2 || e.TimeNs != WallFloor+int64(time.Second) || e.WallNs != 5 {
		t.Errorf("the entry is %v", e)
	}
}

// Log time starts at the wall clock of the leader that founds the cluster, and then
// follows only monotonic clocks.
func TestLogTime(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	found := &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{}}}
	other := named("x")[0]
	s := NewStamp(1, 0, begin)
	founded := begin.Add(5 * time.Second).UnixNano()
	for _, step := range []struct {
		what      string
		stamp     *Stamp
		command   *logv1.Command
		after     time.Duration // on the leader's clock
		committed int64
		want      int64
	}{
		{"before the cluster is founded", s, other, 5 * time.Second, 0, int64(5 * time.Second)},
		{"founded", s, found, 5 * time.Second, 0, founded},
		{"a second later", s, other, 6 * time.Second, founded, founded + int64(time.Second)},
		{"a clock that goes back", s, other, 0, founded, founded + int64(time.Second)},
		{"an entry of a faster leader", s, other, 0, founded + 7, founded + int64(time.Second)},
		{"an entry of a much faster leader", s, other, 0, founded + int64(time.Hour), founded + int64(time.Hour)},
		{"the next leader, whose clock is an hour behind", NewStamp(2, founded, begin.Add(-time.Hour)), found, -time.Hour + time.Second, founded, founded + int64(time.Second)},
	} {
		e := Form(batchOf(step.stamp.term, step.command), step.stamp, Moment{Now: begin.Add(step.after), Committed: step.committed})
		if e.TimeNs != step.want {
			t.Errorf("%s: log time %d, want %d", step.what, e.TimeNs, step.want)
		}
	}
}
