package tier

import (
	"container/list"

	"github.com/tidwall/btree"
)

// windowsMax is how many windows are compared before one is emptied.
const windowsMax = 16

// window is a run of pages of the arena, from an offset to another: blocks that no call uses, and the
// free pages between them.
type window struct {
	from, to int
	blocks   []*block
	// loss is what memory loses with the blocks: of each, its pages times how much later it was used than
	// the block that was used least recently, in ticks.
	loss uint64
}

// blocksByPlace finds blocks in memory by their offset in the arena.
type blocksByPlace struct{ btree.Map[int, *block] }

// endingAt returns the block whose pages end at an offset; nil: none.
func (x *blocksByPlace) endingAt(end int) (found *block) {
	x.Descend(end-1, func(offset int, b *block) bool {
		if offset+padded(b.size) == end {
			found = b
		}
		return false
	})
	return found
}

// startingAt returns the block whose pages start at an offset; nil: none.
func (x *blocksByPlace) startingAt(offset int) *block {
	b, _ := x.Get(offset)
	return b
}

// makeRoom takes the blocks of one window out of memory, so that a value of n bytes fits there. Blocks that
// are nowhere else go to disk first, which it waits for. It reports false if no window is long enough.
func (s *Store) makeRoom(n int) bool {
	w := s.cheapest(padded(n))
	if w == nil {
		if s.dirty.Len() == 0 || !s.disk.accepts() {
			return false
		}
		s.awaitDemoter() // it may be what uses the blocks
		return true
	}
	for _, b := range w.blocks {
		if b.queue == s.dirty {
			s.dirty.MoveToBack(b.place) // the demoter begins there
		}
	}
	for _, b := range w.blocks {
		for b.queue == s.dirty && !s.closed && s.disk.accepts() {
			s.awaitDemoter()
		}
	}
	for _, b := range w.blocks {
		s.leaveMemory(b)
	}
	return true
}

// awaitDemoter asks the demoter to write, and returns when something has changed.
func (s *Store) awaitDemoter() {
	s.waiters++
	s.changed.Broadcast()
	s.changed.Wait()
	s.waiters--
}

// cheapest returns a window of a length whose loss is small; nil: there is none. It compares windows
// around the blocks that were used least recently.
func (s *Store) cheapest(length int) (best *window) {
	tried := map[*block]bool{}
	for _, queue := range []*list.List{s.clean, s.dirty} {
		windows := 0
		for e := queue.Back(); e != nil && (best == nil || windows < windowsMax); e = e.Prev() {
			b := e.Value.(*block)
			if tried[b] || b.inUse() {
				continue
			}
			windows++
			w, fits := s.windowAround(b, length, best)
			if fits {
				best = w
			}
			if fits && w.loss == 0 {
				return w
			}
			for _, b := range w.blocks { // those of a window that is too short have no other
				tried[b] = true
			}
		}
	}
	return best
}

// windowAround grows a window from a block until it has the length, to the side where the loss is less.
// It ends early where it can grow no more, and where it loses as much as another window.
func (s *Store) windowAround(b *block, length int, other *window) (w *window, fits bool) {
	w = &window{from: b.value.offset, to: b.value.offset}
	oldest := s.oldestUse()
	for b != nil {
		w.blocks = append(w.blocks, b)
		w.loss += uint64(padded(b.size)/pageBytes) * s.lossOf(b, oldest)
		w.from, w.to = min(w.from, b.value.offset), max(w.to, b.value.offset+padded(b.size))
		w.from -= s.arena.freeBefore(w.from)
		w.to += s.arena.freeAfter(w.to)
		if w.to-w.from >= length {
			return w, other == nil || w.loss < other.loss
		}
		if other != nil && w.loss >= other.loss {
			break
		}
		b = s.cheaper(s.byPlace.endingAt(w.from), s.byPlace.startingAt(w.to), oldest)
	}
	return w, false
}

// cheaper returns the block of two that is the smaller loss; nil: both are in use or missing.
func (s *Store) cheaper(before, after *block, oldest uint64) *block {
	switch {
	case before == nil || before.inUse():
		if after == nil || after.inUse() {
			return nil
		}
		return after
	case after == nil || after.inUse() || s.lossOf(before, oldest) < s.lossOf(after, oldest):
		return before
	}
	return after
}

// lossOf is how much later a block was used than the oldest one, in ticks. A block that is in memory only
// counts as used just now, because its loss costs a write or is for good.
func (s *Store) lossOf(b *block, oldest uint64) uint64 {
	if b.queue == s.dirty {
		return s.tick - oldest
	}
	return max(b.used, oldest) - oldest
}

// oldestUse is the tick of the use from which losses count.
func (s *Store) oldestUse() uint64 {
	oldest := s.tick
	for _, queue := range []*list.List{s.clean, s.dirty} {
		if last := queue.Back(); last != nil {
			oldest = min(oldest, last.Value.(*block).used)
		}
	}
	return oldest
}
