package tier

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"rota/internal/clock"
)

const (
	// KeyBytesMax is the longest key, in bytes.
	KeyBytesMax = 16 << 10
	// ValueBytesMax is the largest value unless Options say otherwise, in bytes.
	ValueBytesMax = 64 << 20
	// MemoryBytesMin is the smallest memory tier, in bytes.
	MemoryBytesMin = 1 << 20
	// indexPart of the memory is for keys.
	indexPart = 16
	// flushMax is how long Close writes to disk what is in memory only.
	flushMax   = 10 * time.Second
	sweepEvery = time.Second
)

var (
	// ErrOptions means that a store cannot be opened as asked.
	ErrOptions = errors.New("invalid options of the cache")
	// ErrTooLarge means that a key or a value is larger than the limit.
	ErrTooLarge = errors.New("larger than the limit")
	// ErrFull means that the memory is in use by calls that are under way.
	ErrFull = errors.New("the memory of the cache is in use by other calls; try again")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("the cache is closed")
)

// Options say what a store may use.
type Options struct {
	// MemoryBytes bounds the memory tier with its index.
	MemoryBytes uint64
	// Dir holds the disk tier, alone; empty for none. DiskBytes bounds it.
	Dir       string
	DiskBytes uint64
	// ValueBytesMax is the largest value; 0: ValueBytesMax, or a quarter of a small memory.
	ValueBytesMax uint64
	// BootID tells boots of the machine apart. It is needed with Dir.
	BootID string
	// Now is the wall time, for expiry; nil: the clock.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Now == nil {
		o.Now = clock.Now
	}
	if o.MemoryBytes < MemoryBytesMin || o.MemoryBytes > math.MaxInt64 {
		return o, fmt.Errorf("%w: %d bytes of memory; give it %d or more", ErrOptions, o.MemoryBytes, MemoryBytesMin)
	}
	largest := o.MemoryBytes / 4
	if o.ValueBytesMax == 0 {
		o.ValueBytesMax = min(ValueBytesMax, largest)
	}
	if o.ValueBytesMax > largest {
		return o, fmt.Errorf("%w: values of %d bytes need a memory of %d or more", ErrOptions, o.ValueBytesMax, 4*o.ValueBytesMax)
	}
	if o.Dir != "" && o.BootID == "" {
		return o, fmt.Errorf("%w: a disk tier needs the boot ID of the machine", ErrOptions)
	}
	if o.Dir != "" && o.DiskBytes < diskBytesMin {
		return o, fmt.Errorf("%w: %d bytes of disk; give it %d or more", ErrOptions, o.DiskBytes, diskBytesMin)
	}
	return o, nil
}

// Store is an open cache. Its methods may be called concurrently.
type Store struct {
	options  Options
	arena    *arena
	indexMax uint64
	stop     context.CancelFunc
	wg       sync.WaitGroup
	manifest sync.WaitGroup // writeManifest

	// mu is never held while the disk is waited for, so that what is in memory is answered whatever the
	// disk does.
	mu      sync.Mutex
	changed *sync.Cond // anything that a waiter may wait for
	index   index
	byPlace blocksByPlace
	clean   *list.List // blocks in memory that may go at once, last used first
	dirty   *list.List // blocks in memory that are to be demoted, last used first
	onDisk  *list.List // blocks on disk, last used first
	dirtied uint64     // bytes of dirty
	waiters int        // calls that wait for the demoter to make room
	flushes int        // calls that wait for it to write everything
	tick    uint64
	disk    *disk // nil: none
	counts  counts
	closed  bool
}

// Open opens a store, with what an earlier one has left on disk.
func Open(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{options: o, indexMax: o.MemoryBytes / indexPart, index: newIndex(),
		clean: list.New(), dirty: list.New(), onDisk: list.New()}
	s.changed = sync.NewCond(&s.mu)
	if s.arena, err = newArena(int(o.MemoryBytes-s.indexMax) &^ (pageBytes - 1)); err != nil {
		return nil, err
	}
	if o.Dir != "" {
		if err := s.openDisk(); err != nil {
			s.arena.close()
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.wg.Go(func() { s.sweep(ctx) })
	if s.disk != nil {
		s.wg.Go(s.demote)
		s.manifest.Go(s.writeManifest)
	}
	return s, nil
}

// Close writes to disk what is in memory only, for ten seconds at most, and ends the
// disk tier so that the next Open finds everything also after a reboot.
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushMax)
	defer cancel()
	_ = s.Flush(ctx) // what is not written is lost, which is what a cache may do
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	var err error
	if s.disk != nil {
		s.endManifest()
		err = s.disk.close() // nothing else uses it any more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := range s.inMemory {
		b.value.Release()
		b.value = nil
	}
	s.arena.close()
	return err
}

// inMemory goes over all blocks in memory.
func (s *Store) inMemory(yield func(*block) bool) {
	for _, queue := range []*list.List{s.clean, s.dirty} {
		for e := queue.Front(); e != nil; e = e.Next() {
			if !yield(e.Value.(*block)) {
				return
			}
		}
	}
}

// ValueBytesMax is the largest value that the store takes, in bytes.
func (s *Store) ValueBytesMax() uint64 { return s.options.ValueBytesMax }

// NewValue returns a buffer for a value of n bytes, with any content. Filled, it is given
// to Set, or else released. It fails with ErrTooLarge, ErrFull or ErrClosed.
func (s *Store) NewValue(n uint64) (*Value, error) {
	if n > s.options.ValueBytesMax {
		return nil, fmt.Errorf("value of %d bytes: %w of %d", n, ErrTooLarge, s.options.ValueBytesMax)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return nil, ErrClosed
		}
		if v := s.arena.value(int(n)); v != nil {
			return v, nil
		}
		if !s.makeRoom(int(n)) {
			return nil, ErrFull
		}
	}
}

// Condition says when Set sets.
type Condition int

// Conditions of Set.
const (
	Always   Condition = iota
	IfAbsent           // only if the key does not exist
	IfExists           // only if it does
)

// Set makes a key name a value, until a time unless that is zero. It takes the value
// over, also when it fails or the condition does not hold, which it reports. It fails
// with ErrTooLarge or ErrClosed.
func (s *Store) Set(key string, v *Value, expires time.Time, when Condition) (bool, error) {
	return s.SetSummed(key, v, checksums(v.Bytes()), expires, when)
}

// SetSummed is Set for a value whose checksums are known, as FillChunk returns them.
func (s *Store) SetSummed(key string, v *Value, sums []uint32, expires time.Time, when Condition) (bool, error) {
	if len(key) > KeyBytesMax {
		v.Release()
		return false, fmt.Errorf("key of %d bytes: %w of %d", len(key), ErrTooLarge, KeyBytesMax)
	}
	clear(v.pages()[v.size:]) // what others have left there does not go to disk
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settleKeys(key)
	b := s.same(v, sums)
	if s.closed {
		v.Release()
		return false, ErrClosed
	}
	e := s.find(key)
	if e == nil && when == IfExists || e != nil && when == IfAbsent {
		v.Release()
		return false, nil
	}
	if b == nil || b.gone() { // the key may have just expired, and the block with it
		b = s.index.newBlock(v.size, sums)
	}
	if e == nil {
		e = s.index.add(key)
	}
	s.link(e, b, unixMS(expires))
	if b.value == nil {
		s.enterMemory(b, v)
	} else {
		v.Release()
	}
	s.touch(e)
	s.boundIndex()
	return true, nil
}

// same returns the block that has the bytes of a value, if there is one. They are compared
// with those in memory, or by hash with those on disk; Store.mu is not held meanwhile.
func (s *Store) same(v *Value, sums []uint32) *block {
	for {
		b := s.index.blocks[fingerprintOf(v.size, sums)]
		if b == nil || !slices.Equal(b.sums, sums) {
			return nil
		}
		held, want := b.value, b.hash
		if held != nil {
			held.retain()
		}
		s.mu.Unlock()
		var equal bool
		if held != nil {
			equal = bytes.Equal(held.Bytes(), v.Bytes())
			held.Release()
		} else {
			equal = blake3.Sum256(v.Bytes()) == want
		}
		s.mu.Lock()
		if b.gone() {
			continue
		}
		if !equal {
			return nil
		}
		return b
	}
}

// link makes an entry name a block and tells the manifest, if that knows either.
func (s *Store) link(e *entry, b *block, expires int64) {
	known := e.recorded
	if old := e.block; old != b {
		if old != nil {
			s.index.unlink(e)
		}
		s.index.put(e, b)
		if old != nil && old.gone() {
			s.forget(old)
		}
	}
	s.index.setExpiry(e, expires)
	switch e.recorded = b.segment != nil; {
	case e.recorded:
		s.recordOf(keyRecord(e), e.key)
	case known:
		s.recordOf(dropRecord(e.key), e.key)
	}
}

func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMilli(), 1)
}

// find returns a key that exists and has not expired.
func (s *Store) find(key string) *entry {
	e := s.index.byKey[key]
	if e == nil || e.expires == 0 || e.expires > s.options.Now().UnixMilli() {
		return e
	}
	s.counts.expired++
	s.remove(e)
	return nil
}

// remove drops a key, and its block with the last one.
func (s *Store) remove(e *entry) {
	b := s.index.unlink(e)
	s.index.remove(e)
	if b.gone() {
		s.forget(b)
	}
	if e.recorded {
		s.recordOf(dropRecord(e.key), e.key)
	}
}

// evict drops a block with its keys.
func (s *Store) evict(b *block) {
	if b.gone() {
		return
	}
	s.counts.evicted++
	if b.segment != nil {
		s.leaveDisk(b)
	}
	for e := b.entries; e != nil; e = b.entries {
		s.remove(e)
	}
}

// forget drops a block without keys from both tiers.
func (s *Store) forget(b *block) {
	s.index.dropBlock(b)
	s.dropMemory(b)
	if b.segment != nil {
		s.detach(b)
	}
}

// touch counts a key and its block as used.
func (s *Store) touch(e *entry) {
	b := e.block
	s.tick++
	b.used = s.tick
	s.index.aged.MoveToFront(e.age)
	if b.queue != nil {
		b.queue.MoveToFront(b.place)
	}
	if b.rank != nil {
		s.onDisk.MoveToFront(b.rank)
	}
}

// enterMemory takes a value over as the copy in memory.
func (s *Store) enterMemory(b *block, v *Value) {
	b.value = v
	s.byPlace.Set(v.offset, b)
	s.queue(b)
}

// queue puts a block in memory where it belongs: what is on disk, or cannot go there, may
// leave memory at once.
func (s *Store) queue(b *block) {
	if b.queue != nil {
		s.unqueue(b)
	}
	b.queue = s.dirty
	if b.segment != nil || s.disk == nil || !s.disk.takes(b.size) {
		b.queue = s.clean
	} else {
		s.dirtied += uint64(padded(b.size))
		s.changed.Broadcast()
	}
	b.place = b.queue.PushFront(b)
}

func (s *Store) unqueue(b *block) {
	if b.queue == s.dirty {
		s.dirtied -= uint64(padded(b.size))
	}
	b.queue.Remove(b.place)
	b.queue, b.place = nil, nil
}

// dropMemory gives the copy in memory up, if there is one.
func (s *Store) dropMemory(b *block) {
	if b.value == nil {
		return
	}
	s.unqueue(b)
	s.byPlace.Delete(b.value.offset)
	b.value.Release()
	b.value = nil
}

// leaveMemory gives the copy in memory up, and the block if there is no other.
func (s *Store) leaveMemory(b *block) {
	s.dropMemory(b)
	if b.segment == nil {
		s.evict(b)
	}
}

// boundIndex drops the keys that were used least recently, until the index fits in its part of the
// memory. Keys of one block go one by one: others of them may be in use.
func (s *Store) boundIndex() {
	for s.index.bytes > s.indexMax {
		e := s.index.aged.Back().Value.(*entry)
		b := e.block
		if s.remove(e); b.gone() {
			s.counts.evicted++
		}
	}
}

// Flush returns when everything that was in memory before is on disk too, or cannot be.
func (s *Store) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})()
	s.flushes++
	defer func() { s.flushes-- }()
	for s.dirty.Len() > 0 && !s.closed && s.disk.accepts() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.changed.Broadcast()
		s.changed.Wait()
	}
	s.settle(ctx)
	return ctx.Err()
}

// sweep drops expired keys that are not asked for.
func (s *Store) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.mu.Lock()
			s.expire()
			s.changed.Broadcast() // a pause of the disk may be over
			s.mu.Unlock()
		}
	}
}

// expire drops every key whose time has come.
func (s *Store) expire() {
	for now := s.options.Now().UnixMilli(); ; {
		e, ok := s.index.byExpiry.Min()
		if !ok || e.expires > now {
			return
		}
		s.counts.expired++
		s.remove(e)
	}
}

// Now is the wall time that keys expire by.
func (s *Store) Now() time.Time { return s.options.Now() }
