package tensor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rota/agent/internal/directio"
	"rota/agent/internal/record"
)

// Moved says what an operation has written. Unchanged blocks were there already.
type Moved struct {
	WrittenBytes   uint64 `json:"written_bytes"`
	UnchangedBytes uint64 `json:"unchanged_bytes"`
}

// begin finds a state and keeps others from moving it until end is called.
func (s *Store) begin(k Key) (st *state, end func(), err error) {
	s.mu.Lock()
	st, err = s.find(k)
	s.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	st.moving.Lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[k] != st {
		st.moving.Unlock()
		return nil, nil, fmt.Errorf("state %s: %w", k, ErrNotFound)
	}
	return st, st.moving.Unlock, nil
}

// Offload writes a state to disk, unless it is there, and frees its memory, also that of the
// device. A state that is on the device only goes through host memory. When it returns
// without an error the state outlives the agent and the machine's power. It fails with
// ErrNoDisk, ErrNotFound, ErrDisk, ErrMemory, ErrDeviceFailed or ErrCorrupt; the state stays
// in memory then.
func (s *Store) Offload(k Key) (moved Moved, err error) {
	if s.folder == nil {
		return moved, ErrNoDisk
	}
	st, end, err := s.begin(k)
	if err != nil {
		return moved, err
	}
	defer end()
	if st.blocks == nil && st.segments == nil {
		err = s.toHost(st, true)
	}
	if err == nil && st.blocks == nil {
		moved, err = s.toDisk(st)
	}
	if err != nil {
		return moved, fmt.Errorf("offload %s: %w", k, err)
	}
	s.giveUp(st, true, true)
	return moved, nil
}

// toDisk writes a state that is in memory to the disk tier.
func (s *Store) toDisk(st *state) (Moved, error) {
	blocks, err := s.reserveBlocks(st)
	if err != nil {
		return Moved{}, err
	}
	pieces := st.pieces()
	wrote, err := s.putAll(*s.folder, pieces, blocks, func(p piece) ([]byte, func(), error) {
		return pages(st.segments[p.group].mem, p.at, p.tensor.bytes(), p.i), func() {}, nil
	})
	if err == nil {
		err = s.folder.publish(st.key, st.tensors)
	}
	if errors.Is(err, ErrCorrupt) {
		s.unshare(st.segments)
	}
	if err != nil {
		return Moved{}, errors.Join(err, s.unpublish(st.key), s.dropBlocks(blocks))
	}
	s.mu.Lock()
	st.blocks = blocks
	s.mu.Unlock()
	return s.count(pieces, wrote), nil
}

// unpublish removes the manifest of a state, durably, before its blocks go.
func (s *Store) unpublish(k Key) error {
	err := os.Remove(s.folder.manifest(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return record.SyncDir(filepath.Join(s.folder.dir, statesName))
}

func (s *Store) count(pieces []piece, wrote []bool) (m Moved) {
	for i, p := range pieces {
		if wrote[i] {
			m.WrittenBytes += p.bytes()
		} else {
			m.UnchangedBytes += p.bytes()
		}
	}
	s.counts.written.Add(m.WrittenBytes)
	s.counts.reused.Add(m.UnchangedBytes)
	return m
}

// reserveBlocks takes references to the blocks of a state within the limit of the disk, and
// removes spare files for which that leaves no room.
func (s *Store) reserveBlocks(st *state) ([]*block, error) {
	s.mu.Lock()
	var need, whole uint64
	counted := map[hash]bool{}
	for _, p := range st.pieces() {
		if s.blocks[p.hash()] == nil && !counted[p.hash()] {
			counted[p.hash()] = true
			need += directio.Padded(p.bytes())
			whole += p.bytes() / BlockBytes * BlockBytes
		}
	}
	limit := s.options.DiskBytes
	if need > limit || s.disk > limit-need {
		defer s.mu.Unlock()
		return nil, fmt.Errorf("%w: %s needs %s, and %s of %s are in use; %s", ErrDisk, st.key, mib(need), mib(s.disk), mib(limit),
			s.advice("drop", func(st *state) bool { return st.blocks != nil }))
	}
	blocks := s.nameBlocks(st)
	room := limit - s.disk + whole // whole blocks are written over spares
	s.mu.Unlock()
	s.folder.spares.trim(room)
	return blocks, nil
}

// Restore reads a state from disk into memory, unless it is there. The copy on disk stays,
// so the next Offload writes nothing. It fails with ErrNotFound, ErrOnDevice, ErrMemory or
// ErrCorrupt.
func (s *Store) Restore(k Key) error {
	st, end, err := s.begin(k)
	if err != nil {
		return err
	}
	defer end()
	if st.segments != nil {
		return nil
	}
	if st.blocks == nil {
		return fmt.Errorf("restore: %w", st.elsewhere())
	}
	segments, err := s.fill(st, s.reader(*s.folder, st))
	if err != nil {
		return fmt.Errorf("restore %s: %w", k, err)
	}
	s.mu.Lock()
	st.segments = segments
	s.mu.Unlock()
	return nil
}

// fill brings a state into memfds: read fills those that it is given, and seals them. What is
// in memory already, as part of another state, is shared and not read.
func (s *Store) fill(st *state, read func(target []*segment) error) (segments []*segment, err error) {
	ids := st.segmentIDs()
	segments = make([]*segment, len(ids))
	var missing []uint64
	s.mu.Lock()
	for i, id := range ids {
		if segments[i] = s.segments[id]; segments[i] != nil {
			segments[i].refs++
		} else {
			missing = append(missing, st.sizes[i])
		}
	}
	s.mu.Unlock()
	fresh, err := s.allocate(st.key, missing, true)
	target := make([]*segment, len(ids)) // those to be read
	held := fresh
	for i := range ids {
		switch {
		case segments[i] != nil:
			held = append(held, segments[i])
		case err == nil:
			target[i], fresh = fresh[0], fresh[1:]
			segments[i] = target[i]
		}
	}
	if err == nil {
		err = read(target)
	}
	if err != nil {
		s.release(held)
		return nil, err
	}
	shared, double := s.share(ids, segments)
	s.release(double)
	return shared, nil
}

// origin is where states are read from: a folder or a place in an object store.
type origin interface {
	read(k Key) ([]*tensor, error)
	get(h hash, page []byte, n uint64) error
}

// reader reads the blocks of a state from where they are.
func (s *Store) reader(f origin, st *state) func(target []*segment) error {
	return func(target []*segment) error {
		return s.whilePinning(target, func() error {
			return s.fillBlocks(st, target, func(p piece, page []byte) error { return f.get(p.hash(), page, p.bytes()) })
		})
	}
}

// fillBlocks has get fill each block of those groups that have a target, and seals them. What
// was in the rest of a page goes.
func (s *Store) fillBlocks(st *state, target []*segment, get func(p piece, page []byte) error) error {
	var pieces []piece
	for _, p := range st.pieces() {
		if target[p.group] != nil {
			pieces = append(pieces, p)
		}
	}
	err := s.each(pieces, func(_ int, p piece) error {
		page := pages(target[p.group].mem, p.at, p.tensor.bytes(), p.i)
		target[p.group].populate(page)
		err := get(p, page)
		clear(page[p.bytes():])
		return err
	})
	if err != nil {
		return err
	}
	return sealAll(target)
}

func sealAll(target []*segment) error {
	for _, g := range target {
		if g == nil {
			continue
		}
		if err := g.sealFilled(); err != nil {
			return err
		}
	}
	return nil
}

// Checkpoint writes a state to a folder or to a place in an object store, s3://BUCKET/PREFIX. It may
// hold other checkpoints: blocks that are there are compared and not written again. When it returns
// without an error, the checkpoint is whole and durable. It fails with ErrInvalid, ErrNotFound,
// ErrOnDevice, ErrDisk, ErrNoRemote, ErrRemote or ErrCorrupt.
func (s *Store) Checkpoint(k Key, dir string) (Moved, error) {
	st, end, err := s.begin(k)
	if err != nil {
		return Moved{}, err
	}
	defer end()
	save, err := s.checkpointTo(dir)
	if err != nil {
		return Moved{}, fmt.Errorf("checkpoint %s: %w", k, err)
	}
	src, err := s.source(st)
	if err != nil {
		return Moved{}, fmt.Errorf("checkpoint: %w", err)
	}
	defer src.close()
	wrote, err := save(st, src.page)
	if errors.Is(err, ErrCorrupt) {
		s.unshare(src.segments)
	}
	if err != nil {
		return Moved{}, fmt.Errorf("checkpoint %s: %w", k, err)
	}
	return s.count(st.pieces(), wrote), nil
}

// checkpointTo returns what writes a state to a place.
func (s *Store) checkpointTo(dir string) (save func(st *state, page pageOf) (wrote []bool, err error), err error) {
	if isRemote(dir) {
		r, err := s.openRemote(dir)
		return r.save, err
	}
	if s.folder != nil && within(dir, s.folder.dir) {
		return nil, fmt.Errorf("%w: %s is in the state disk of the agent; choose another folder", ErrInvalid, dir)
	}
	f, err := openFolder(dir)
	return func(st *state, page pageOf) (wrote []bool, err error) {
		if wrote, err = s.putAll(f, st.pieces(), nil, page); err == nil {
			err = f.publish(st.key, st.tensors)
		}
		return wrote, err
	}, err
}

// within says whether a path, of which the last parts may not exist yet, is in a folder.
func within(path, dir string) bool {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
			break
		}
		if path == filepath.Dir(path) {
			return false
		}
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	below, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(below)
}

// source is where the bytes of a state are read from. It stays while the state is moved or
// dropped.
type source struct {
	store    *Store
	segments []*segment
	blocks   []*block
}

// source fails with ErrOnDevice, or with ErrNotFound if the state was dropped.
func (s *Store) source(st *state) (*source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.segments == nil && st.blocks == nil {
		return nil, st.elsewhere()
	}
	src := &source{store: s, segments: s.hold(st)}
	if src.segments == nil {
		for _, b := range st.blocks {
			b.refs++
		}
		src.blocks = st.blocks
	}
	return src, nil
}

func (src *source) close() {
	src.store.release(src.segments)
	_ = src.store.dropBlocks(src.blocks) // what stays, the next Open removes
}

// page returns a block and what fills its last page. Only bytes from disk are verified.
func (src *source) page(p piece) (page []byte, free func(), err error) {
	if src.segments != nil {
		return pages(src.segments[p.group].mem, p.at, p.tensor.bytes(), p.i), func() {}, nil
	}
	page, free = pageBuffer(p.bytes())
	if err := src.store.folder.get(p.hash(), page, p.bytes()); err != nil {
		free()
		return nil, nil, err
	}
	return page, free, nil
}

// Load reads a state of a checkpoint into memory, under a key of its own or another. It
// fails with ErrInvalid, ErrNotFound, ErrExists, ErrMemory, ErrNoRemote, ErrRemote or ErrCorrupt.
func (s *Store) Load(dir string, k, as Key) (info Info, err error) {
	if err := errors.Join(k.check(), as.check()); err != nil {
		return info, err
	}
	f, err := s.checkpointIn(dir)
	if err != nil {
		return info, err
	}
	tensors, err := f.read(k)
	if err != nil {
		return info, err
	}
	if err := s.reserveKey(as); err != nil {
		return info, err
	}
	st := newState(as, tensors)
	segments, err := s.fill(st, s.reader(f, st))
	if err != nil {
		s.freeKey(as)
		return info, fmt.Errorf("load %s from %s: %w", k, dir, err)
	}
	s.enter(st, segments)
	return s.info(st), nil
}

// checkpointIn returns the place of a checkpoint, for reading.
func (s *Store) checkpointIn(dir string) (origin, error) {
	if isRemote(dir) {
		return s.openRemote(dir)
	}
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("%w: the folder %q is not an absolute path", ErrInvalid, dir)
	}
	return folder{dir: dir}, nil // without direct I/O, which could only be found out by writing
}

// Copy gives a state a second key, without copying its bytes. It fails with ErrInvalid,
// ErrNotFound, ErrExists or ErrDisk.
func (s *Store) Copy(from, to Key) (info Info, err error) {
	if err := to.check(); err != nil {
		return info, err
	}
	st, end, err := s.begin(from)
	if err != nil {
		return info, err
	}
	defer end()
	if err := s.reserveKey(to); err != nil {
		return info, err
	}
	twin := newState(to, st.tensors)
	s.mu.Lock()
	twin.segments, twin.copies = s.hold(st), s.holdCopies(st)
	if st.blocks != nil {
		twin.blocks = s.nameBlocks(twin)
	}
	s.mu.Unlock()
	if twin.blocks != nil {
		err = s.folder.publish(to, twin.tensors)
	}
	if err != nil {
		s.release(twin.segments)
		s.releaseDevice(twin.copies)
		s.freeKey(to)
		return info, errors.Join(err, s.unpublish(to), s.dropBlocks(twin.blocks))
	}
	s.mu.Lock()
	delete(s.reserved, to)
	s.states[to] = twin
	s.mu.Unlock()
	return s.info(twin), nil
}

// Drop forgets a state, in memory, on disk and on the device. It fails with ErrNotFound.
func (s *Store) Drop(k Key) error {
	s.mu.Lock()
	st := s.states[k]
	s.mu.Unlock()
	if st == nil {
		return fmt.Errorf("state %s: %w", k, ErrNotFound)
	}
	st.moving.Lock()
	defer st.moving.Unlock()
	s.mu.Lock()
	there := s.states[k] == st
	onDisk := st.blocks != nil || st.damaged != nil
	s.mu.Unlock()
	if !there {
		return fmt.Errorf("state %s: %w", k, ErrNotFound)
	}
	if onDisk {
		if err := s.unpublish(k); err != nil {
			return fmt.Errorf("drop %s: %w", k, err)
		}
	}
	s.mu.Lock()
	delete(s.states, k)
	held, blocks, copies := st.segments, st.blocks, st.copies
	st.segments, st.blocks, st.copies = nil, nil, nil
	s.mu.Unlock()
	s.release(held)
	s.releaseDevice(copies)
	return s.dropBlocks(blocks)
}
