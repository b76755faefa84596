package tier

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/zeebo/blake3"
)

const (
	// demoteBytes and demoteBlocks bound what is written at once.
	demoteBytes  = 32 << 20
	demoteBlocks = 64
)

// errNoRoom means that the disk tier is full of nothing that could be dropped.
var errNoRoom = errors.New("no segment can be dropped to make room")

// demote is the goroutine that writes to disk, and makes room there.
func (s *Store) demote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		switch {
		case s.disk.broken != nil && s.onDisk.Len() > 0:
			s.endDisk()
		case s.dropEmpty():
		case s.shouldDemote():
			s.demoteBatch()
		default:
			s.changed.Wait()
		}
	}
}

// shouldDemote says whether blocks are to be written now: when somebody waits for it, and
// when three quarters of the memory would have to be written first.
func (s *Store) shouldDemote() bool {
	if s.dirty.Len() == 0 || !s.disk.accepts() {
		return false
	}
	return s.waiters > 0 || s.flushes > 0 || s.dirtied > uint64(len(s.arena.mem))/4*3
}

// endDisk drops everything from a disk tier that has ended, and lets memory evict what it
// would have demoted.
func (s *Store) endDisk() {
	for last := s.onDisk.Back(); last != nil; last = s.onDisk.Back() {
		s.lose(last.Value.(*block))
	}
	for last := s.dirty.Back(); last != nil; last = s.dirty.Back() {
		s.queue(last.Value.(*block))
	}
	for _, g := range s.disk.segments {
		s.drop(g)
	}
	s.changed.Broadcast()
}

// dropEmpty removes a segment that holds nothing.
func (s *Store) dropEmpty() bool {
	for _, g := range s.disk.segments {
		if g.sealed && g.live == 0 {
			s.drop(g)
			return true
		}
	}
	return false
}

// copying is a block on its way to disk.
type copying struct {
	block  *block
	value  *Value
	offset int64
	hash   hash
	hashed bool
	err    error
}

// demoteBatch writes the blocks that were used least recently. Store.mu is not held while
// it writes.
func (s *Store) demoteBatch() {
	defer s.changed.Broadcast()
	var batch []*copying
	bytes, bytesMax := 0, int(min(demoteBytes, s.disk.segmentBytes()))
	for e := s.dirty.Back(); e != nil && len(batch) < demoteBlocks && bytes < bytesMax; e = e.Prev() {
		b := e.Value.(*block)
		bytes += padded(b.size)
		batch = append(batch, &copying{block: b, value: b.value.retain()})
	}
	defer func() {
		for _, c := range batch {
			c.value.Release()
		}
	}()
	for s.disk.used+int64(bytes) > s.disk.room() {
		if err := s.reclaim(); err != nil {
			s.disk.failed(err)
			return
		}
		if s.closed {
			return
		}
	}
	s.write(batch)
}

// write appends blocks to the active segment and tells the manifest where they are. What
// does not match its checksum in memory is not written.
func (s *Store) write(batch []*copying) {
	g, err := s.segment()
	if err != nil {
		s.disk.failed(err)
		return
	}
	end := g.size
	for _, c := range batch {
		c.offset, c.hash, c.hashed = end, c.block.hash, c.block.hashed
		end += int64(padded(c.value.size))
	}
	write, size := s.disk.write, g.size
	var failed error
	s.aside(func() { size, failed = g.append(batch, write) })
	s.disk.used += size - g.size
	g.size = size
	g.sealed = g.sealed || failed != nil || g.size >= s.disk.segmentBytes()
	if s.disk.problem = nil; failed != nil {
		s.disk.failed(failed)
	}
	for _, c := range batch {
		s.written(c, g)
	}
}

// append writes blocks and returns the new size of the segment. After a failed write the rest is cut
// off.
func (g *segment) append(batch []*copying, write func(*os.File, []byte, int64) (int, error)) (size int64, failed error) {
	var wg sync.WaitGroup
	for _, c := range batch {
		wg.Go(func() {
			if !matches(c.value.Bytes(), c.block.sums) {
				c.err = errDamaged
				return
			}
			if !c.hashed {
				c.hash = blake3.Sum256(c.value.Bytes())
			}
			_, c.err = write(g.file, c.value.pages(), c.offset)
		})
	}
	wg.Wait()
	size = g.size
	for _, c := range batch {
		if c.err == nil {
			size = c.offset + int64(padded(c.value.size))
		} else if !errors.Is(c.err, errDamaged) {
			failed = c.err
		}
	}
	if failed != nil {
		_ = g.file.Truncate(size)
	}
	return size, failed
}

// segment returns the segment that is written to.
func (s *Store) segment() (*segment, error) {
	if g := s.disk.active; g != nil && !g.sealed {
		return g, nil
	}
	return s.create()
}

// written notes that a block is on disk, or why it is not.
func (s *Store) written(c *copying, g *segment) {
	b := c.block
	switch {
	case errors.Is(c.err, errDamaged) && b.value == c.value:
		s.counts.corrupt++
		s.leaveMemory(b)
	case c.err != nil || b.gone():
	default:
		if old := b.segment; old != nil { // it is moved
			delete(old.blocks, b)
			old.live -= int64(padded(b.size))
		} else {
			s.counts.demoted++
		}
		b.hash, b.hashed = c.hash, true
		s.attach(b, g, c.offset)
		payloads := [][]byte{blockRecord(b)}
		for e := b.entries; e != nil; e = e.next {
			e.recorded = true
			payloads = append(payloads, keyRecord(e))
		}
		s.record(payloads...)
		if b.value != nil {
			s.queue(b)
		}
	}
}

// reclaim drops one segment: one that is mostly garbage, or the one with the block that
// was used least recently. Of that, blocks that were used since they were written are
// moved, half a segment of them at most, and the others evicted.
func (s *Store) reclaim() error {
	g := s.victim()
	if g == nil {
		return errNoRoom
	}
	g.sealed = true
	keep := s.worthMoving(g)
	kept := map[*block]bool{}
	for _, b := range keep {
		kept[b] = true
	}
	for b := range g.blocks {
		if !kept[b] {
			s.dropFromDisk(b)
		}
	}
	for _, b := range keep {
		if b.segment == g {
			s.move(b)
		}
		if b.segment == g { // it could not be moved
			s.dropFromDisk(b)
		}
	}
	s.drop(g)
	return nil
}

// dropFromDisk evicts a block, unless it is in memory too: it stays there.
func (s *Store) dropFromDisk(b *block) {
	if b.value == nil {
		s.evict(b)
		return
	}
	s.leaveDisk(b)
	// It had its time on disk, so it is not written again.
	s.unqueue(b)
	b.queue = s.clean
	b.place = b.queue.PushBack(b)
}

func (s *Store) victim() *segment {
	var best *segment
	for _, g := range s.disk.segments {
		if g.sealed && g.live <= g.size/2 && (best == nil || g.live*best.size < best.live*g.size) {
			best = g
		}
	}
	if last := s.onDisk.Back(); best == nil && last != nil {
		best = last.Value.(*block).segment
	}
	if best == nil {
		best = s.disk.active // it may be garbage only
	}
	return best
}

func (s *Store) worthMoving(g *segment) (keep []*block) {
	mostlyGarbage := g.live <= g.size/2
	for b := range g.blocks {
		if b.used > b.wrote || mostlyGarbage {
			keep = append(keep, b)
		}
	}
	slices.SortFunc(keep, func(a, b *block) int { return cmp.Compare(b.used, a.used) })
	room := min(g.size, s.disk.segmentBytes()) / 2
	return slices.DeleteFunc(keep, func(b *block) bool {
		room -= int64(padded(b.size))
		return room < 0
	})
}

// move writes a block to the active segment. Store.mu is not held while it reads.
func (s *Store) move(b *block) {
	if b.value != nil {
		v := b.value.retain()
		defer v.Release()
		s.write([]*copying{{block: b, value: v}})
		return
	}
	g, offset := b.segment, b.offset
	var v *Value
	var closer func()
	var err error
	s.aside(func() { v, closer, err = readAside(g.file, offset, b) })
	if err != nil {
		if !b.gone() && b.segment == g && !errors.Is(err, os.ErrClosed) {
			s.counts.corrupt++
		}
		return
	}
	defer closer()
	s.write([]*copying{{block: b, value: v}})
}

// readAside reads a block into memory of its own: the memory tier may have none to spare.
func readAside(f *os.File, offset int64, b *block) (*Value, func(), error) {
	aside, err := newArena(padded(b.size))
	if err != nil {
		return nil, nil, err
	}
	v := aside.value(b.size)
	closer := func() {
		v.Release()
		aside.close()
	}
	if err := readBlock(f, offset, v, b.sums); err != nil {
		closer()
		return nil, nil, err
	}
	return v, closer, nil
}
