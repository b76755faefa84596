package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"rota/fsm/state"
	"rota/jepsen/history"
)

// watch: every watcher has received each event of an action once, in the order of revisions, from
// the revision that it began behind up to the one that it was told to have come to, over all
// interruptions. A watcher lists anew, and is another one from then on, only if it was so far
// behind that the server no longer keeps what comes next. While there is no fault, it hears of new
// revisions. In the end, the watcher at each server has come to the last revision.
//
// What there was to receive is what the log says, and without a whole log what
// all watchers together received.
func watch(e *evidence, f *findings) {
	f.checked = len(e.Watch)
	all, whole := e.eventsToSee(f)
	agree(e.Watch, f)
	watchers := e.watchers()
	for _, id := range slices.Sorted(maps.Keys(watchers)) {
		w := watchers[id]
		if !w.began(e.eventsKept(), f) || !inOrder(w.events, f) {
			continue
		}
		if next, ok := gapless(w, all, whole, f); ok {
			w.noTail(all[next:], f)
		}
	}
	heardFrom(e, f)
	arrived(e, watchers, f)
}

// watched is what one watcher has received and noted.
type watched struct {
	id     int
	events []history.WatchEvent
	notes  []history.WatchNote
}

func (e *evidence) watchers() map[int]*watched {
	all := make(map[int]*watched)
	of := func(id int) *watched {
		if all[id] == nil {
			all[id] = &watched{id: id}
		}
		return all[id]
	}
	for _, w := range e.Watch {
		of(w.Watcher).events = append(of(w.Watcher).events, w)
	}
	for _, n := range e.WatchNotes {
		of(n.Watcher).notes = append(of(n.Watcher).notes, n)
	}
	return all
}

// eventsKept is how many events servers keep for watchers.
func (e *evidence) eventsKept() uint64 {
	return uint64(cmp.Or(e.truth().last.Meta().Settings.EventsMax, state.Settings{}.WithDefaults().EventsMax))
}

// began: a watcher begins with the first event, or lists anew because it was too far behind.
func (w *watched) began(kept uint64, f *findings) bool {
	if len(w.notes) == 0 || w.notes[0].Kind != history.WatchBegan {
		f.add(nil, "watcher %d received events and never began", w.id)
		return false
	}
	n := w.notes[0]
	if n.Reason != "" && (n.Reason != tooOld || n.Revision < n.Lost || n.Revision-n.Lost <= kept) {
		f.add([]string{describeNote(n)}, "watcher %d had to list anew at revision %d, and the %d events after %d are kept", w.id, n.Revision, kept, n.Lost)
	}
	return true
}

// tooOld is the reason of a server that no longer keeps what comes next.
const tooOld = "REVISION_TOO_OLD"

// reached is the revision that a watcher has come to.
func (w *watched) reached() (revision uint64) {
	for _, n := range w.notes {
		revision = max(revision, n.Revision)
	}
	for _, event := range w.events {
		revision = max(revision, event.Revision)
	}
	return revision
}

// noTail: what a watcher was told to have come to, it has received.
func (w *watched) noTail(rest []history.WatchEvent, f *findings) {
	to := w.reached()
	missed := slices.IndexFunc(rest, func(event history.WatchEvent) bool { return event.Revision > to })
	if missed < 0 {
		missed = len(rest)
	}
	if missed > 0 {
		f.add([]string{describeEvent(rest[0])}, "watcher %d missed %d events, and was told that it has all up to revision %d", w.id, missed, to)
	}
}

// eventsToSee returns all events by revision, and whether there are no others
// between the first and the last.
func (e *evidence) eventsToSee(f *findings) (all []history.WatchEvent, whole bool) {
	if t, whole := e.whole(f); whole {
		return t.events, true
	}
	seen := slices.Clone(e.Watch)
	slices.SortStableFunc(seen, func(a, b history.WatchEvent) int { return cmp.Compare(a.Revision, b.Revision) })
	return slices.CompactFunc(seen, func(a, b history.WatchEvent) bool { return a.Revision == b.Revision }), false
}

func sameEvent(a, b history.WatchEvent) bool {
	return a.Revision == b.Revision && a.Action == b.Action && a.State == b.State && a.Attempt == b.Attempt
}

// agree: a revision is the same event for everybody.
func agree(events []history.WatchEvent, f *findings) {
	first := make(map[uint64]history.WatchEvent)
	for _, w := range events {
		seen, known := first[w.Revision]
		switch {
		case !known:
			first[w.Revision] = w
		case !sameEvent(seen, w):
			f.add([]string{describeEvent(seen), describeEvent(w)}, "revision %d is two events", w.Revision)
		}
	}
}

func inOrder(events []history.WatchEvent, f *findings) bool {
	for i := 1; i < len(events); i++ {
		a, b := events[i-1], events[i]
		switch {
		case b.Revision == a.Revision:
			f.add([]string{describeEvent(a), describeEvent(b)}, "watcher %d received revision %d twice", b.Watcher, b.Revision)
			return false
		case b.Revision < a.Revision:
			f.add([]string{describeEvent(a), describeEvent(b)}, "watcher %d received revision %d after %d", b.Watcher, b.Revision, a.Revision)
			return false
		}
	}
	return true
}

// gapless walks along what there was to see, and returns what comes after the watcher's last
// event. Behind the end of what is known it cannot tell.
func gapless(w *watched, all []history.WatchEvent, whole bool, f *findings) (next int, ok bool) {
	next, _ = slices.BinarySearchFunc(all, w.notes[0].Revision+1, func(a history.WatchEvent, rev uint64) int { return cmp.Compare(a.Revision, rev) })
	for i, event := range w.events {
		missed := next
		for next < len(all) && all[next].Revision < event.Revision {
			next++
		}
		if next > missed {
			lines := []string{describeEvent(all[missed]), describeEvent(event)}
			if i > 0 {
				lines = append([]string{describeEvent(w.events[i-1])}, lines...)
			}
			f.add(lines, "watcher %d missed %d events", w.id, next-missed)
			return next, false
		}
		switch {
		case next == len(all):
			return next, true
		case whole && !sameEvent(all[next], event):
			f.add([]string{describeEvent(event)}, "watcher %d received an event that the log does not have: there revision %d is action %d %s, attempt %d",
				w.id, all[next].Revision, all[next].Action, all[next].State, all[next].Attempt)
			return next, false
		}
		next++
	}
	return next, true
}

// silenceMax is how long a watcher may hear nothing of a new revision while there is no fault. A
// server whose revision has moved says so within 5 s, events or not.
const silenceMax = 10 * time.Second

// sign is that somebody heard of a revision.
type sign struct {
	at       int64
	revision uint64
}

// heardFrom: each watcher hears of new revisions. From the start of a fault until all members are
// back, it need not.
func heardFrom(e *evidence, f *findings) {
	signs := make(map[string][]sign)
	for _, w := range e.Watch {
		signs[w.Server] = append(signs[w.Server], sign{w.At, w.Revision})
	}
	for _, n := range e.WatchNotes {
		if n.Kind != history.WatchResumed {
			signs[n.Server] = append(signs[n.Server], sign{n.At, n.Revision})
		}
	}
	for _, server := range slices.Sorted(maps.Keys(signs)) {
		list := signs[server]
		slices.SortStableFunc(list, func(a, b sign) int { return cmp.Compare(a.at, b.at) })
		for i := 1; i < len(list); i++ {
			if last, to := list[i-1], list[i].at; to-last.at > int64(silenceMax) {
				from := max(last.at, e.movedPast(last.revision))
				if to-from-e.faulty(from, to) > int64(silenceMax) {
					f.add(nil, "the watcher at %s heard nothing from %s to %s, and revision %d was not the newest", server, at(from), at(to), last.revision)
				}
			}
		}
	}
}

// movedPast is when somebody first knew of a newer revision.
func (e *evidence) movedPast(revision uint64) int64 {
	first := e.Duration
	for _, w := range e.Watch {
		if w.Revision > revision {
			first = min(first, w.At)
		}
	}
	for _, op := range e.Ops {
		if op.Outcome == history.OK && op.Revision > revision {
			first = min(first, op.End)
		}
	}
	return first
}

// faulty is how much of a time something was broken.
func (e *evidence) faulty(from, to int64) (sum int64) {
	for _, fault := range e.Faults {
		sum += max(0, min(to, cmp.Or(fault.Whole, e.Duration))-max(from, fault.Start))
	}
	return sum
}

// arrived: in the end the watcher at each member has come to the last revision.
func arrived(e *evidence, watchers map[int]*watched, f *findings) {
	if e.Healing.Settled == 0 || e.Healing.Revision == 0 {
		return // the run was broken off, and nobody looked
	}
	reached := make(map[string]uint64)
	for _, w := range watchers {
		if len(w.notes) > 0 {
			server := w.notes[0].Server
			reached[server] = max(reached[server], w.reached())
		}
	}
	for _, s := range e.Hashes {
		if slices.Contains(e.Servers, s.Server) && reached[s.Server] < e.Healing.Revision {
			f.add(nil, "the watcher at %s came to revision %d in the end, the last one is %d", s.Server, reached[s.Server], e.Healing.Revision)
		}
	}
}

func describeNote(n history.WatchNote) string {
	return fmt.Sprintf("%s: watcher %d at %s %s at revision %d, was at %d: %s", at(n.At), n.Watcher, n.Server, n.Kind, n.Revision, n.Lost, n.Reason)
}
