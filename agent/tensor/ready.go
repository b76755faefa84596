package tensor

import (
	"fmt"
	"slices"
)

// readyBytesMin is the least size of memory that is worth to be held ready.
const readyBytesMin = 1 << 20

// reusable says whether the agent may fill the memory again: it alone can write it, and no
// worker has seen it. Store.mu is held.
func (s *segment) reusable() bool {
	return s.filled && !s.passed && s.bytes >= readyBytesMin
}

// reserveMemory counts memory for memfds of some sizes, within the limit. If the agent is to
// fill them, those that are ready and have the right size are taken; nil for the others. It
// fails with ErrMemory.
func (s *Store) reserveMemory(k Key, sizes []uint64, fill bool) ([]*segment, error) {
	taken := make([]*segment, len(sizes))
	s.mu.Lock()
	defer s.mu.Unlock()
	var n uint64
	for i, size := range sizes {
		if fill {
			taken[i] = s.takeReady(size)
		}
		if taken[i] == nil {
			n += size
		}
	}
	limit := s.options.MemoryBytes
	for n <= limit && s.memory <= limit-n && s.memory+s.freeing+s.ready.bytes > limit-n {
		if !s.freeReady() {
			s.freed.Wait()
		}
	}
	if n > limit || s.memory > limit-n {
		for _, g := range taken {
			if g != nil {
				s.memory -= g.bytes
				s.makeReady(g)
			}
		}
		var sum uint64
		for _, size := range sizes {
			sum += size
		}
		return nil, fmt.Errorf("%w: %s needs %s, and %s of %s are in use; %s", ErrMemory, k, mib(sum), mib(s.memory), mib(limit),
			s.advice("offload or drop", func(st *state) bool { return st.segments != nil }))
	}
	s.memory += n
	return taken, nil
}

// takeReady takes memory of a size that is ready, and counts it as used; nil if there is
// none. Store.mu is held.
func (s *Store) takeReady(bytes uint64) *segment {
	for i, g := range s.ready.segments {
		if g.bytes == bytes {
			s.ready.segments = slices.Delete(s.ready.segments, i, i+1)
			s.ready.bytes -= bytes
			s.memory += bytes
			return g
		}
	}
	return nil
}

// makeReady holds memory ready that is not counted as used any more. Store.mu is held.
func (s *Store) makeReady(g *segment) {
	g.private = false // its next bytes are others
	s.ready.segments = append(s.ready.segments, g)
	s.ready.bytes += g.bytes
}

// freeReady gives the oldest ready memory to the kernel; false if there is none. Store.mu is
// held.
func (s *Store) freeReady() bool {
	if len(s.ready.segments) == 0 {
		return false
	}
	g := s.ready.segments[0]
	s.ready.segments = slices.Delete(s.ready.segments, 0, 1)
	s.ready.bytes -= g.bytes
	s.freeing += g.bytes
	go s.free([]*segment{g})
	return true
}
