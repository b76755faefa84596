package check

import (
	"cmp"
	"maps"
	"slices"

	"rota/jepsen/history"
)

// watch: every watcher has received each event of an action once, in the order
// of revisions, from the first that it received to the last, over all
// interruptions. A watcher that had to list again, because it was behind what is
// kept, is another watcher.
//
// What there was to receive is what the log says, and without a whole log what
// all watchers together received.
func watch(e *evidence, f *findings) {
	of := make(map[int][]history.WatchEvent)
	for _, w := range e.Watch {
		of[w.Watcher] = append(of[w.Watcher], w)
	}
	f.checked = len(e.Watch)
	all, whole := e.eventsToSee()
	agree(e.Watch, f)
	for _, watcher := range slices.Sorted(maps.Keys(of)) {
		if inOrder(of[watcher], f) {
			gapless(of[watcher], all, whole, f)
		}
	}
}

// eventsToSee returns all events by revision, and whether there are no others
// between the first and the last.
func (e *evidence) eventsToSee() (all []history.WatchEvent, whole bool) {
	if t := e.truth(); t.complete {
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

// gapless walks along what there was to see. Behind its end nothing is known.
func gapless(events, all []history.WatchEvent, whole bool, f *findings) {
	next, _ := slices.BinarySearchFunc(all, events[0].Revision, func(a history.WatchEvent, rev uint64) int { return cmp.Compare(a.Revision, rev) })
	for i, w := range events {
		missed := next
		for next < len(all) && all[next].Revision < w.Revision {
			next++
		}
		if next > missed {
			lines := []string{describeEvent(all[missed]), describeEvent(w)}
			if i > 0 {
				lines = append([]string{describeEvent(events[i-1])}, lines...)
			}
			f.add(lines, "watcher %d missed %d events", w.Watcher, next-missed)
			return
		}
		switch {
		case next == len(all):
			return
		case whole && !sameEvent(all[next], w):
			f.add([]string{describeEvent(w)}, "watcher %d received an event that the log does not have: there revision %d is action %d %s, attempt %d",
				w.Watcher, all[next].Revision, all[next].Action, all[next].State, all[next].Attempt)
			return
		}
		next++
	}
}
