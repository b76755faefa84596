package state

import "slices"

// eventChunk is how many events one chunk of the ring holds.
const eventChunk = 1024

// eventRing keeps the newest events. Chunks are shared between copies of the
// ring: a copy never looks beyond its own end, and only the newest copy appends. One that is
// apart may append too.
type eventRing struct {
	chunks []*[eventChunk]Event
	base   uint64 // revision of the first slot of the first chunk
	first  uint64 // oldest revision kept
	next   uint64 // revision of the next event
	hash   uint64
}

func newEventRing(first uint64) eventRing {
	return eventRing{base: first, first: first, next: first}
}

func (r *eventRing) at(rev uint64) *Event {
	i := rev - r.base
	return &r.chunks[i/eventChunk][i%eventChunk]
}

// push appends an event, whose revision must be next, and drops the oldest ones
// beyond the limit.
func (r *eventRing) push(c *codec, e Event, limit uint32) {
	if i := r.next - r.base; i/eventChunk == uint64(len(r.chunks)) {
		// The full slice expression makes append copy, so that a copy of the ring
		// which also appends does not write into the same array.
		r.chunks = append(r.chunks[:len(r.chunks):len(r.chunks)], new([eventChunk]Event))
	}
	slot := r.at(r.next)
	*slot = e
	r.hash += hashRow(c, tableEvents, slot)
	r.next++
	for r.next-r.first > uint64(limit) {
		r.hash -= hashRow(c, tableEvents, r.at(r.first))
		r.first++
	}
	for r.first-r.base >= eventChunk {
		r.chunks = r.chunks[1:]
		r.base += eventChunk
	}
}

// apart returns a ring with the same events. What is appended to it is not seen through this one,
// to which another goroutine may append meanwhile.
func (r *eventRing) apart() eventRing {
	out := *r
	if n := (r.next - r.base) % eventChunk; n > 0 {
		last := new([eventChunk]Event)
		copy(last[:n], r.chunks[len(r.chunks)-1][:n])
		out.chunks = slices.Clone(r.chunks)
		out.chunks[len(out.chunks)-1] = last
	}
	return out
}
