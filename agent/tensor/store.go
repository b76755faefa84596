package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"rota/agent/internal/directio"
	"rota/agent/internal/record"
	"rota/agent/tensor/device"
)

// MemoryBytesMin is the least memory of a store, in bytes.
const MemoryBytesMin = 1 << 20

// Options say what a store may use.
type Options struct {
	// MemoryBytes bounds the memfds that the agent holds.
	MemoryBytes uint64
	// Dir holds the disk tier, alone; empty for none. DiskBytes bounds its blocks.
	Dir       string
	DiskBytes uint64
	// Remote is where checkpoints in an object store may be, s3://BUCKET/PREFIX; empty for none. The
	// environment has the credentials, and s3.FromEnvironment says how.
	Remote string
	// Device is memory of a GPU, or what stands for it. A store that is open closes it.
	Device device.Device
	// Logger is told what is not as fast as it could be; nil for none.
	Logger hclog.Logger
}

// tensor is a tensor of a committed state.
type tensor struct {
	Tensor
	place
	hashes []hash // of its blocks
	// sums are the CRC-32C of its blocks; nil: not known. They tell whether memory has rotted since
	// it was hashed, ten times as fast as hashing it again.
	sums []uint32
}

func placeAll(tensors []*tensor) error {
	specs := make([]Tensor, len(tensors))
	for i, t := range tensors {
		specs[i] = t.Tensor
	}
	places, _, _, err := layout(specs)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for i, t := range tensors {
		t.place = places[i]
	}
	return nil
}

// state is a committed state. It is in memory, on disk, on the device, or in several of them.
type state struct {
	key     Key
	tensors []*tensor
	groups  []string
	sizes   []uint64 // bytes of the groups
	moving  sync.Mutex
	// Store.mu guards what follows.
	segments []*segment    // one for each group; nil: not in memory
	blocks   []*block      // one reference for each block of each tensor; nil: not on disk
	copies   []*deviceCopy // one for each group; nil: not on the device
	damaged  error         // the manifest cannot be trusted: all that can be done is to drop it
}

// newState makes a state of tensors that have their places.
func newState(k Key, tensors []*tensor) *state {
	specs := make([]Tensor, len(tensors))
	for i, t := range tensors {
		specs[i] = t.Tensor
	}
	_, groups, sizes, err := layout(specs)
	if err != nil {
		panic("tensor: a layout that was fine is not: " + err.Error())
	}
	return &state{key: k, tensors: tensors, groups: groups, sizes: sizes}
}

// bytes of the tensors, without what fills pages.
func (st *state) bytes() (n uint64) {
	for _, t := range st.tensors {
		n += t.bytes()
	}
	return n
}

// piece is block i of a tensor.
type piece struct {
	*tensor
	i int
}

func (p piece) hash() hash    { return p.hashes[p.i] }
func (p piece) bytes() uint64 { return blockBytes(p.tensor.bytes(), p.i) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// check says whether the block still is what was committed. It fails with ErrCorrupt.
func (p piece) check(block []byte) error {
	if p.sums == nil {
		if err := matches(block, p.hash()); err != nil {
			return err
		}
		return nil
	}
	if crc32.Checksum(block, castagnoli) != p.sums[p.i] {
		return fmt.Errorf("%w: they do not match their checksum", ErrCorrupt)
	}
	return nil
}

func (st *state) pieces() (all []piece) {
	for _, t := range st.tensors {
		for i := range t.hashes {
			all = append(all, piece{t, i})
		}
	}
	return all
}

// segmentIDs say what is in each memfd of the state: equal ones can be shared.
func (st *state) segmentIDs() []hash {
	ids := make([]hash, len(st.groups))
	for i := range ids {
		h := blake3.New()
		for _, t := range st.tensors {
			if t.group != i {
				continue
			}
			fmt.Fprintln(h, t.bytes())
			for _, sum := range t.hashes {
				_, _ = h.Write(sum[:])
			}
		}
		h.Sum(ids[i][:0])
	}
	return ids
}

// Store holds states. All methods may be called at once.
type Store struct {
	options Options
	folder  *folder       // nil: no disk
	device  device.Device // nil: none
	lock    *os.File
	closing atomic.Bool
	running context.Context // until closing is set
	stop    context.CancelFunc
	counts  struct{ written, reused, corrupt atomic.Uint64 } // bytes, bytes, times

	unpinned sync.Once // warns

	mu       sync.Mutex
	states   map[Key]*state
	reserved map[Key]bool // keys that will have a state, if all goes well
	segments map[hash]*segment
	blocks   map[hash]*block
	memory   uint64 // bytes of memfds
	disk     uint64 // bytes of blocks
	copies   map[hash]*deviceCopy
	freeing  uint64 // bytes of memfds that nothing needs and the kernel still has
	freed    *sync.Cond
	ready    struct { // what Restore and ToHost may fill; the oldest comes first
		segments []*segment
		bytes    uint64
	}
}

// Open opens a store with the states that are on its disk. A state whose manifest is damaged
// is listed as such and can only be dropped. It fails with ErrOptions or record.ErrLocked.
func Open(o Options) (_ *Store, err error) {
	if o.MemoryBytes < MemoryBytesMin || o.MemoryBytes > math.MaxInt64 {
		return nil, fmt.Errorf("%w: %d bytes of memory; give it %d or more", ErrOptions, o.MemoryBytes, MemoryBytesMin)
	}
	if (o.Dir == "") != (o.DiskBytes == 0) {
		return nil, fmt.Errorf("%w: a disk needs both a folder and a size", ErrOptions)
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	s := &Store{options: o, device: o.Device, copies: map[hash]*deviceCopy{}, states: map[Key]*state{}, reserved: map[Key]bool{}, segments: map[hash]*segment{}, blocks: map[hash]*block{}}
	s.freed = sync.NewCond(&s.mu)
	s.running, s.stop = context.WithCancel(context.Background())
	if o.Remote != "" {
		if _, err := s.openRemote(o.Remote); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
	}
	if o.Dir == "" {
		return s, nil
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	f, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if s.lock, err = record.Lock(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("state disk %s: %w", dir, err)
	}
	s.folder = &f
	if f.spares, err = openSpares(dir); err == nil {
		err = s.recover()
	}
	if err != nil {
		_ = s.lock.Close()
		return nil, fmt.Errorf("state disk %s: %w", dir, err)
	}
	return s, nil
}

// recover finds the states on disk and removes what a crash has left behind. Blocks that a
// damaged manifest may have named stay until it is dropped and the store is opened again.
func (s *Store) recover() error {
	keys, err := s.folder.keys()
	if err != nil {
		return err
	}
	trusted := true
	for _, k := range keys {
		tensors, err := s.folder.read(k)
		if err != nil {
			s.states[k] = &state{key: k, damaged: err}
			s.counts.corrupt.Add(1)
			trusted = false
			continue
		}
		st := newState(k, tensors)
		s.states[k] = st
		st.blocks = s.nameBlocks(st)
	}
	if !trusted {
		return nil
	}
	return s.folder.removeOthers(func(h hash) bool { return s.blocks[h] != nil })
}

// Close gives up everything that is in memory and on the device. No method may be called
// after it.
func (s *Store) Close() (err error) {
	s.Interrupt()
	s.mu.Lock()
	var held []*segment
	var copies []*deviceCopy
	for _, st := range s.states {
		held, copies = append(held, st.segments...), append(copies, st.copies...)
		st.segments, st.copies = nil, nil
	}
	s.mu.Unlock()
	s.release(held)
	s.releaseDevice(copies)
	s.mu.Lock()
	for s.freeReady() || s.freeing > 0 {
		s.freed.Wait()
	}
	s.mu.Unlock()
	if s.device != nil {
		err = s.device.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Interrupt makes operations that are under way fail with ErrClosed at their next block.
func (s *Store) Interrupt() {
	s.closing.Store(true)
	s.stop()
}

// each calls f for blocks until the store is closed, and counts damage.
func (s *Store) each(pieces []piece, f func(i int, p piece) error) error {
	err := each(len(pieces), func(i int) error {
		if s.closing.Load() {
			return ErrClosed
		}
		if err := f(i, pieces[i]); err != nil {
			return fmt.Errorf("tensor %s, block %d: %w", pieces[i].Name, pieces[i].i, err)
		}
		return nil
	})
	if errors.Is(err, ErrCorrupt) {
		s.counts.corrupt.Add(1)
	}
	return err
}

// Creation is a state that a worker writes.
type Creation struct {
	store    *Store
	state    *state
	segments []*segment
}

// Create makes the memfds of a new state. The creation is to be committed or aborted. It
// fails with ErrInvalid, ErrExists or ErrMemory.
func (s *Store) Create(k Key, specs []Tensor) (*Creation, error) {
	places, _, _, err := layout(specs)
	if err == nil {
		err = k.check()
	}
	if err != nil {
		return nil, err
	}
	tensors := make([]*tensor, len(specs))
	for i, t := range specs {
		tensors[i] = &tensor{Tensor: t, place: places[i]}
	}
	c := &Creation{store: s, state: newState(k, tensors)}
	if err := s.reserveKey(k); err != nil {
		return nil, err
	}
	if c.segments, err = s.allocate(k, c.state.sizes, false); err != nil {
		s.freeKey(k)
		return nil, err
	}
	return c, nil
}

// Abort frees what Create made.
func (c *Creation) Abort() {
	c.store.release(c.segments)
	c.store.freeKey(c.state.key)
}

// Commit seals the state, hashes it and gives it its key. It fails with ErrMapped while a
// worker maps a memfd for writing; the creation stays as it is then, as after every error.
func (c *Creation) Commit() (Info, error) {
	for i, g := range c.segments {
		if err := g.seal(); err != nil {
			return Info{}, fmt.Errorf("group %q of %s: %w", c.state.groups[i], c.state.key, err)
		}
	}
	for _, t := range c.state.tensors {
		t.hashes, t.sums = make([]hash, blocksOf(t.bytes())), make([]uint32, blocksOf(t.bytes()))
	}
	err := c.store.whilePinning(c.segments, func() error {
		return c.store.each(c.state.pieces(), func(_ int, p piece) error {
			page := pages(c.segments[p.group].mem, p.at, p.tensor.bytes(), p.i)
			_ = unix.Madvise(page, unix.MADV_POPULATE_READ) // it maps pages faster than reading them does
			p.hashes[p.i], p.sums[p.i] = blake3.Sum256(page[:p.bytes()]), crc32.Checksum(page[:p.bytes()], castagnoli)
			return nil
		})
	})
	if err != nil {
		return Info{}, err
	}
	c.store.enter(c.state, c.segments)
	return c.store.info(c.state), nil
}

// enter makes a state that is in memory known under its key, which was reserved. Memfds with
// contents that are there already are given up.
func (s *Store) enter(st *state, segments []*segment) {
	shared, double := s.share(st.segmentIDs(), segments)
	s.mu.Lock()
	st.segments = shared
	delete(s.reserved, st.key)
	s.states[st.key] = st
	s.mu.Unlock()
	s.release(double)
}

// share returns for each segment the one that already has its contents, or itself. From then on
// other states share it, unless it is private.
func (s *Store) share(ids []hash, segments []*segment) (shared, double []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range segments {
		if same := s.segments[ids[i]]; same != nil && same != g {
			same.refs++
			shared, double = append(shared, same), append(double, g)
			continue
		}
		g.id = ids[i]
		if !g.private {
			s.segments[g.id] = g
		}
		shared = append(shared, g)
	}
	return shared, double
}

// unshare makes segments private; nil ones are passed over. States that share one already have the
// same bytes, and find out themselves.
func (s *Store) unshare(segments []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range segments {
		if g != nil {
			g.private = true
			unlist(s.segments, g.id, g)
		}
	}
}

// allocate makes memfds within the limit. It fails with ErrMemory.
func (s *Store) allocate(k Key, sizes []uint64, fill bool) (segments []*segment, err error) {
	taken, err := s.reserveMemory(k, sizes, fill)
	if err != nil {
		return nil, err
	}
	for i, g := range taken {
		if g == nil {
			if g, err = newSegment(sizes[i], fill); err != nil {
				s.release(segments)
				s.unreserve(taken[i:], sizes[i:])
				return nil, err
			}
		}
		g.refs = 1
		segments = append(segments, g)
	}
	return segments, nil
}

// unreserve gives up what reserveMemory has counted or taken.
func (s *Store) unreserve(taken []*segment, sizes []uint64) {
	var held []*segment
	for i, g := range taken {
		if g == nil {
			s.freeMemory(sizes[i])
			continue
		}
		g.refs = 1
		held = append(held, g)
	}
	s.release(held)
}

func (s *Store) freeMemory(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory -= n
}

// advice names the largest states that a user may do something to. Store.mu is held.
func (s *Store) advice(what string, suits func(*state) bool) string {
	var found []*state
	for _, st := range s.states {
		if suits(st) {
			found = append(found, st)
		}
	}
	if len(found) == 0 {
		return "no committed state is there to " + what + ": give the agent a higher limit, or wait for other workers"
	}
	slices.SortFunc(found, func(a, b *state) int {
		return cmp.Or(cmp.Compare(b.bytes(), a.bytes()), compareKeys(a.key, b.key))
	})
	var named []string
	for _, st := range found[:min(3, len(found))] {
		named = append(named, fmt.Sprintf("%s (%s)", st.key, mib(st.bytes())))
	}
	return what + " states, such as " + strings.Join(named, ", ")
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// release gives references to memfds up. The kernel takes a while to free many pages, and
// the caller need not wait for it: reserveMemory does, if it needs them.
func (s *Store) release(segments []*segment) {
	var dead []*segment
	s.mu.Lock()
	for _, g := range segments {
		if g.refs--; g.refs > 0 {
			continue
		}
		s.memory -= g.bytes
		unlist(s.segments, g.id, g)
		if g.reusable() && !s.closing.Load() {
			s.makeReady(g)
			continue
		}
		dead = append(dead, g)
		s.freeing += g.bytes
	}
	s.mu.Unlock()
	if len(dead) > 0 {
		go s.free(dead)
	}
}

func (s *Store) free(dead []*segment) {
	for _, g := range dead {
		g.close()
		s.mu.Lock()
		s.freeing -= g.bytes
		s.mu.Unlock()
		s.freed.Broadcast()
	}
}

func (s *Store) reserveKey(k Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.states[k] != nil:
		return fmt.Errorf("%w: %s; drop it or choose another version", ErrExists, k)
	case s.reserved[k]:
		return fmt.Errorf("%w: %s is being created by another call", ErrExists, k)
	}
	s.reserved[k] = true
	return nil
}

func (s *Store) freeKey(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reserved, k)
}

// View is a committed state that is mapped. Whoever gets one closes it.
type View struct {
	store    *Store
	state    *state
	segments []*segment
}

// Close gives the view up. What workers have mapped stays for them.
func (v *View) Close() { v.store.release(v.segments) }

// View returns a state for reading. It fails with ErrNotFound, ErrOffloaded or
// ErrOnDevice.
func (s *Store) View(k Key) (*View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.find(k)
	if err != nil {
		return nil, err
	}
	if st.segments == nil {
		return nil, st.elsewhere()
	}
	for _, g := range st.segments {
		g.passed = true
	}
	return &View{s, st, s.hold(st)}, nil
}

// find looks a state up. Store.mu is held.
func (s *Store) find(k Key) (*state, error) {
	st := s.states[k]
	switch {
	case st == nil:
		return nil, fmt.Errorf("state %s: %w", k, ErrNotFound)
	case st.damaged != nil:
		return nil, fmt.Errorf("state %s is lost, drop it: %w", k, st.damaged)
	}
	return st, nil
}

// hold takes references to the memfds of a state. Store.mu is held.
func (s *Store) hold(st *state) []*segment {
	for _, g := range st.segments {
		g.refs++
	}
	return slices.Clone(st.segments)
}

// block is a file of the disk tier.
type block struct {
	hash  hash
	bytes uint64 // on disk
	refs  int    // Store.mu guards it

	mu sync.Mutex // held while the file is written, compared or removed
}

// nameBlocks takes a reference to each block of a state. The caller has room for them, and
// holds Store.mu or is alone.
func (s *Store) nameBlocks(st *state) (blocks []*block) {
	blocks = []*block{} // also if all tensors are empty: the state is on disk then
	for _, p := range st.pieces() {
		b := s.blocks[p.hash()]
		if b == nil {
			b = &block{hash: p.hash(), bytes: directio.Padded(p.bytes())}
			s.blocks[b.hash] = b
			s.disk += b.bytes
		}
		b.refs++
		blocks = append(blocks, b)
	}
	return blocks
}

// dropBlocks gives references up and removes the files of blocks without any.
func (s *Store) dropBlocks(blocks []*block) (err error) {
	var dead []*block
	s.mu.Lock()
	for _, b := range blocks {
		if b.refs--; b.refs == 0 {
			dead = append(dead, b)
		}
	}
	s.mu.Unlock()
	for _, b := range dead {
		err = errors.Join(err, s.removeBlock(b))
	}
	return err
}

// removeBlock removes a block unless it was named again. One that is named while its file
// goes is written anew: who names a block without holding it already puts it, too.
func (s *Store) removeBlock(b *block) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.mu.Lock()
	again := b.refs > 0 || s.blocks[b.hash] != b
	s.mu.Unlock()
	if again {
		return nil
	}
	err = s.folder.spares.retire(s.folder.block(b.hash), b.bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.refs == 0 && s.blocks[b.hash] == b {
		delete(s.blocks, b.hash)
		s.disk -= b.bytes
	}
	return err
}
