package tier

import (
	"context"
	"errors"
	"os"
	"time"
)

// Get returns the value of a key, to be released, or nil.
func (s *Store) Get(key string) *Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.get(key)
	if v == nil {
		s.counts.misses++
	}
	return v
}

// get looks until a copy matches its checksums or there is none.
func (s *Store) get(key string) *Value {
	for !s.closed {
		e := s.find(key)
		if e == nil {
			return nil
		}
		b := e.block
		s.touch(e)
		var v *Value
		var again bool
		switch {
		case b.value != nil:
			v, again = s.readMemory(b)
		case b.loading != nil:
			again = s.waitForLoad(b)
		default:
			v, again = s.load(b)
		}
		if !again {
			return v
		}
	}
	return nil
}

// readMemory checks the copy in memory. Store.mu is not held meanwhile.
func (s *Store) readMemory(b *block) (v *Value, again bool) {
	v = b.value.retain()
	s.mu.Unlock()
	ok := matches(v.Bytes(), b.sums)
	s.mu.Lock()
	if ok {
		s.counts.memoryHits++
		return v, false
	}
	if b.value == v {
		s.counts.corrupt++
		s.leaveMemory(b)
	}
	v.Release()
	return nil, true
}

func (s *Store) waitForLoad(b *block) (again bool) {
	loading := b.loading
	s.mu.Unlock()
	<-loading
	s.mu.Lock()
	return true
}

// load reads a block from disk into memory, where it stays. Store.mu is not held
// meanwhile: the block may have been moved, replaced or dropped when it is back.
func (s *Store) load(b *block) (v *Value, again bool) {
	segment, offset := b.segment, b.offset
	loading := make(chan struct{})
	b.loading = loading
	s.mu.Unlock()
	v, err := s.NewValue(uint64(b.size))
	if err == nil {
		err = readBlock(segment.file, offset, v, b.sums)
	}
	s.mu.Lock()
	b.loading = nil
	close(loading)
	there := !b.gone() && b.segment == segment && b.offset == offset
	switch {
	case err == nil && !b.gone() && b.value == nil:
		s.enterMemory(b, v.retain())
		fallthrough
	case err == nil:
		s.counts.diskHits++
		return v, false
	case v == nil:
		return nil, false // no memory, or closed
	case there && !errors.Is(err, os.ErrClosed):
		s.counts.corrupt++
		s.lose(b)
	}
	v.Release()
	return nil, true
}

// lose drops the copy on disk, and the block if there is no other.
func (s *Store) lose(b *block) {
	if b.value == nil {
		s.evict(b)
		return
	}
	s.leaveDisk(b)
	s.queue(b)
}

// Size returns the size of a key's value in bytes.
func (s *Store) Size(key string) (n int, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		return 0, false
	}
	return e.block.size, true
}

// Delete drops a key and reports whether it existed.
func (s *Store) Delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settleKeys(key)
	e := s.find(key)
	if e != nil && !s.closed {
		s.remove(e)
	}
	return e != nil
}

// Expire lets a key expire at a time and reports whether it exists.
func (s *Store) Expire(key string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settleKeys(key)
	e := s.find(key)
	if e == nil || s.closed {
		return false
	}
	s.index.setExpiry(e, unixMS(at))
	if e.recorded {
		s.recordOf(keyRecord(e), key)
	}
	return true
}

// Rename gives the value of a key another key, in place of the value that this one may have
// had, without an expiry. It reports false if the key does not exist.
func (s *Store) Rename(from, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settleKeys(from, to)
	e := s.find(from)
	if e == nil || s.closed || len(to) > KeyBytesMax {
		return false
	}
	if from == to {
		return true
	}
	b, there := e.block, s.find(to)
	if there == nil {
		there = s.index.add(to)
	}
	s.link(there, b, 0) // before the old key goes, which would take the block with it
	s.remove(e)
	s.touch(there)
	s.boundIndex()
	return true
}

// Remaining returns how long a key will exist; negative: until it is evicted.
func (s *Store) Remaining(key string) (left time.Duration, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	switch {
	case e == nil:
		return 0, false
	case e.expires == 0:
		return -1, true
	}
	return time.Duration(e.expires-s.options.Now().UnixMilli()) * time.Millisecond, true
}

// Len returns the number of keys.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return len(s.index.byKey)
}

// Scan returns up to n keys and where to go on, which is 0 at the end and at the start.
// A key that exists all the while is returned once.
func (s *Store) Scan(cursor uint64, n int) (keys []string, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.index.bySeq.Ascend(cursor, func(seq uint64, e *entry) bool {
		if len(keys) == n {
			next = seq
			return false
		}
		keys = append(keys, e.key)
		return true
	})
	return keys, next
}

// Clear drops all keys.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, e := range s.index.byKey {
		e.recorded = false // one record says it for all
		s.remove(e)
	}
	if m := s.record(clearRecord()); m != nil {
		m.recordedAll()
	}
	s.settle(context.Background())
}
