package check

import (
	"slices"
	"strings"
	"testing"

	"rota/jepsen/history"
)

var brokenWatch = []caseOf{
	{"watch", "twice", "twice", func(_ *testing.T, r *history.Record) {
		r.Watch = slices.Insert(r.Watch, 31, r.Watch[30])
	}},
	{"watch", "backwards", "after", func(_ *testing.T, r *history.Record) {
		r.Watch[30], r.Watch[33] = r.Watch[33], r.Watch[30] // of one watcher
	}},
	{"watch", "a gap", "watcher 0 missed 1 events", func(_ *testing.T, r *history.Record) { r.Watch = slices.Delete(r.Watch, 30, 31) }},
	{"watch", "a gap where it resumed", "missed 1 events", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Watch[10:], func(w *history.WatchEvent) bool { return w.Resumed })
		r.Watch = slices.DeleteFunc(r.Watch, func(w history.WatchEvent) bool { return w == *x })
	}},
	{"watch", "a gap, compacted logs", "missed 1 events", func(_ *testing.T, r *history.Record) {
		withoutLogs(r)
		r.Watch = slices.Delete(r.Watch, 30, 31)
	}},
	{"watch", "repeated where it resumed", "received revision", func(t *testing.T, r *history.Record) {
		x := *pick(t, r.Watch[10:], func(w *history.WatchEvent) bool { return w.Resumed })
		i := slices.Index(r.Watch, x)
		before := r.Watch[i-3]
		before.Resumed = true
		r.Watch = slices.Insert(r.Watch, i, before)
	}},
	{"watch", "the first events are missing", "watcher 1 missed", func(_ *testing.T, r *history.Record) {
		r.Watch = slices.DeleteFunc(r.Watch, func(w history.WatchEvent) bool { return w.Watcher == 1 && w.Revision < 40 })
	}},
	{"watch", "the last events are missing", "and was told that it has all up to revision", func(_ *testing.T, r *history.Record) {
		r.Watch = slices.DeleteFunc(r.Watch, func(w history.WatchEvent) bool { return w.Watcher == 1 && w.Revision > 60 })
	}},
	{"watch", "the last events are missing, compacted logs", "and was told that it has all up to revision", func(_ *testing.T, r *history.Record) {
		withoutLogs(r)
		r.Watch = slices.DeleteFunc(r.Watch, func(w history.WatchEvent) bool { return w.Watcher == 1 && w.Revision > 60 })
	}},
	{"watch", "a watcher that hangs", "the watcher at s2 came to revision", func(_ *testing.T, r *history.Record) {
		hung(r, 1, r.Duration/2, r.Duration)
	}},
	{"watch", "a watcher that hangs for a while", "the watcher at s2 heard nothing from", func(_ *testing.T, r *history.Record) {
		hung(r, 1, r.Duration/2, r.Duration/2+15*second)
	}},
	{"watch", "no watcher at a server", "the watcher at s3 came to revision 0", func(_ *testing.T, r *history.Record) {
		hung(r, 2, 0, r.Duration)
	}},
	{"watch", "a list anew without need", "the 65536 events after 40 are kept", func(_ *testing.T, r *history.Record) {
		listAnew(r, 40, 60, "REVISION_TOO_OLD")
	}},
	{"watch", "a revision of another cluster", "had to list anew at revision 70000", func(_ *testing.T, r *history.Record) {
		listAnew(r, 40, 70_000, "REVISION_UNKNOWN")
	}},
	{"watch", "another event", "is two events", func(_ *testing.T, r *history.Record) { r.Watch[30].State = "LOST" }},
	{"watch", "another event for everybody", "the log does not have", func(_ *testing.T, r *history.Record) {
		for i := range 3 {
			r.Watch[30+i].State = "LOST"
		}
	}},
}

// hung has a watcher receive nothing in a time, neither events nor where it is.
func hung(r *history.Record, watcher int, from, to int64) {
	r.Watch = slices.DeleteFunc(r.Watch, func(w history.WatchEvent) bool { return w.Watcher == watcher && w.At >= from && w.At <= to })
	r.WatchNotes = slices.DeleteFunc(r.WatchNotes, func(n history.WatchNote) bool { return n.Watcher == watcher && n.At >= from && n.At <= to })
}

// listAnew has watcher 1 go on as another one at a revision, after it had come to an older one.
func listAnew(r *history.Record, lost, revision uint64, reason string) {
	r.Watch = slices.DeleteFunc(r.Watch, func(w history.WatchEvent) bool { return w.Watcher == 1 && w.Revision > lost && w.Revision <= revision })
	began := history.WatchNote{Watcher: 7, Server: "s2", At: r.Duration / 2, Kind: history.WatchBegan, Revision: revision, Lost: lost, Reason: reason}
	notes := []history.WatchNote{began}
	for _, n := range r.WatchNotes {
		if n.Watcher == 1 && n.Revision > lost {
			n.Watcher = 7
		}
		notes = append(notes, n)
	}
	r.WatchNotes = notes
	for i := range r.Watch {
		if r.Watch[i].Watcher == 1 && r.Watch[i].Revision > revision {
			r.Watch[i].Watcher = 7
		}
	}
}

// A watcher may list anew only if its server keeps so many events and it was further behind.
func TestOnlyOldEventsMayBeLost(t *testing.T) {
	for _, c := range []struct {
		lost, revision uint64
		reason         string
		ok             bool
	}{
		{0, 0, "", true},
		{10, 75, tooOld, true},
		{10, 74, tooOld, false},
		{10, 9, tooOld, false},
		{10, 75, "REVISION_UNKNOWN", false},
	} {
		w := &watched{notes: []history.WatchNote{{Kind: history.WatchBegan, Revision: c.revision, Lost: c.lost, Reason: c.reason}}}
		var f findings
		if began := w.began(64, &f); !began || (f.total == 0) != c.ok {
			t.Errorf("%+v: began %v, %d findings", c, began, f.total)
		}
	}
}

// While something is broken, a watcher need not hear from its server.
func TestAWatcherMayHearNothingUnderAFault(t *testing.T) {
	r := healthy(t, 40)
	hung(r, 1, r.Duration/2, r.Duration/2+15*second)
	r.Faults = append(r.Faults, history.Fault{Name: "pause", Start: r.Duration / 2, End: r.Duration/2 + 8*second, Whole: r.Duration/2 + 9*second, Happened: "stood still"})
	for _, violation := range verdictOf(t, "watch", r).Violations {
		if strings.Contains(violation, "heard nothing") {
			t.Error(violation)
		}
	}
}

// A server says nothing as long as its revision does not move.
func TestNothingNewIsNoSilence(t *testing.T) {
	note := func(server string, at int64, revision uint64) history.WatchNote {
		return history.WatchNote{Server: server, At: at, Kind: history.WatchTold, Revision: revision}
	}
	r := &history.Record{Duration: 100 * second, WatchNotes: []history.WatchNote{note("s1", second, 7), note("s1", 60*second, 8)}}
	for _, c := range []struct {
		moved int64
		found int
	}{{55 * second, 0}, {40 * second, 1}} {
		r.Ops = []history.Op{{Verb: history.Status, End: c.moved, Outcome: history.OK, Revision: 8}}
		var f findings
		if heardFrom(gather(r, Limits{}), &f); f.total != c.found {
			t.Errorf("the revision moved at %s: %d findings, want %d", at(c.moved), f.total, c.found)
		}
	}
}
