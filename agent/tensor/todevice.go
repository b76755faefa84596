package tensor

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"rota/agent/tensor/device"
)

// deviceCopy is a group of a state in memory of the device. Equal groups share one.
type deviceCopy struct {
	id     hash
	bytes  uint64
	memory device.Memory
	refs   int // Store.mu guards it
}

// elsewhere says why a state cannot be used though it is known: it is on the device only, on
// disk only, or gone. Store.mu or state.moving is held.
func (st *state) elsewhere() error {
	switch {
	case st.blocks != nil:
		return fmt.Errorf("%s: %w", st.key, ErrOffloaded)
	case st.copies != nil:
		return fmt.Errorf("%s: %w", st.key, ErrOnDevice)
	}
	return fmt.Errorf("state %s: %w", st.key, ErrNotFound)
}

// deviceError makes errors of the device those of the store.
func deviceError(err error) error {
	switch {
	case errors.Is(err, device.ErrFull):
		return fmt.Errorf("%w: %w", ErrDevice, err)
	case errors.Is(err, device.ErrNoHandle):
		return fmt.Errorf("%w: %w", ErrNoHandle, err)
	case errors.Is(err, device.ErrFailed):
		return fmt.Errorf("%w: %w", ErrDeviceFailed, err)
	}
	return err
}

// ToDevice copies a state from host memory to the device, unless it is there, and frees the
// host memory unless it is to be kept. It fails with ErrNoDevice, ErrNotFound, ErrOffloaded,
// ErrDevice or ErrDeviceFailed; the state stays in host memory then.
func (s *Store) ToDevice(k Key, keep bool) error {
	if s.device == nil {
		return ErrNoDevice
	}
	st, end, err := s.begin(k)
	if err != nil {
		return err
	}
	defer end()
	if st.copies == nil {
		if err := s.toDevice(st); err != nil {
			return fmt.Errorf("copy %s to the device: %w", k, err)
		}
	}
	s.giveUp(st, !keep, false)
	return nil
}

func (s *Store) toDevice(st *state) error {
	if st.segments == nil {
		return st.elsewhere()
	}
	var copies []*deviceCopy
	for _, g := range st.segments {
		c, err := s.copyIn(st.key, g)
		if err != nil {
			s.releaseDevice(copies)
			return err
		}
		copies = append(copies, c)
	}
	s.mu.Lock()
	st.copies = copies
	s.mu.Unlock()
	return nil
}

// copyIn returns the copy of a memfd on the device, which it makes if there is none.
func (s *Store) copyIn(k Key, g *segment) (*deviceCopy, error) {
	if c := s.sharedCopy(g, nil); c != nil {
		return c, nil
	}
	memory, err := s.device.Allocate(g.bytes)
	if err != nil {
		return nil, s.describeFull(k, g.bytes, deviceError(err))
	}
	s.pin(g)
	err = s.eachCopy(g.mem, memory.CopyIn)
	if err != nil {
		return nil, errors.Join(deviceError(err), memory.Free())
	}
	made := &deviceCopy{id: g.id, bytes: g.bytes, memory: memory, refs: 1}
	c := s.sharedCopy(g, made)
	if c != made {
		s.freeCopy(made)
	}
	return c, nil
}

// sharedCopy takes a reference to the copy that should have the bytes of a memfd. If there is none, it
// enters the one that was made, unless the memfd is private: then the copy is, too.
func (s *Store) sharedCopy(g *segment, made *deviceCopy) *deviceCopy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.copies[g.id]; c != nil {
		c.refs++
		return c
	}
	if made != nil && !g.private {
		s.copies[g.id] = made
	}
	return made
}

// unshareCopies lets no other state share copies that were found corrupt. A worker that has one open
// keeps it, so it would be found under its ID again.
func (s *Store) unshareCopies(copies []*deviceCopy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range copies {
		unlist(s.copies, c.id, c)
	}
}

// unlist removes what has an ID, unless another has taken its place. Store.mu is held.
func unlist[V comparable](listed map[hash]V, id hash, v V) {
	if listed[id] == v {
		delete(listed, id)
	}
}

// describeFull names what a user may move if the device is full.
func (s *Store) describeFull(k Key, n uint64, err error) error {
	if !errors.Is(err, ErrDevice) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w; %s needs %s, and %s of %s of %s are in use; %s", err, k, mib(n), mib(s.device.UsedBytes()),
		mib(s.device.CapacityBytes()), s.device.Name(), s.advice("copy to the host or drop", func(st *state) bool { return st.copies != nil }))
}

// pin keeps memory in place for copies, or says once that it cannot.
func (s *Store) pin(g *segment) {
	g.pinning.Do(func() {
		unpin, err := s.device.Pin(g.mem)
		if err == nil {
			g.unpin = unpin
			return
		}
		s.unpinned.Do(func() {
			s.options.Logger.Warn("host memory is not pinned, so copies between it and the device are slower; raise the limit of locked memory",
				"device", s.device.Name(), "error", err)
		})
	})
}

// whilePinning pins memory for copies beside f, which hashes it or fills it: to pin pages takes longer
// than to copy them, so a copy that comes soon would wait. Without a device it only calls f.
func (s *Store) whilePinning(segments []*segment, f func() error) error {
	if s.device == nil {
		return f()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for _, g := range segments {
			if g != nil {
				s.pin(g)
			}
		}
	})
	return f()
}

// eachCopy calls f for the parts of memory that the device copies best, until the store is closed.
func (s *Store) eachCopy(mem []byte, f func(at uint64, part []byte) error) error {
	bytes, atOnce := s.device.Copies()
	return eachOf((len(mem)+bytes-1)/bytes, atOnce, func(i int) error {
		if s.closing.Load() {
			return ErrClosed
		}
		at := i * bytes
		return f(uint64(at), mem[at:min(at+bytes, len(mem))])
	})
}

// ToHost copies a state from the device to host memory, unless it is there, and frees the
// memory of the device unless it is to be kept. Bytes are compared with their checksums, or else
// their hashes, as they come, unless the caller does without; they are compared when they are written or sliced in
// any case, and only Copy shares them. It fails with ErrNoDevice, ErrNotFound, ErrOffloaded,
// ErrMemory, ErrDeviceFailed or ErrCorrupt; the state stays where it is then.
func (s *Store) ToHost(k Key, keep, verify bool) error {
	if s.device == nil {
		return ErrNoDevice
	}
	st, end, err := s.begin(k)
	if err != nil {
		return err
	}
	defer end()
	if st.segments == nil {
		if err := s.toHost(st, verify); err != nil {
			return fmt.Errorf("copy %s to the host: %w", k, err)
		}
	}
	s.giveUp(st, false, !keep)
	return nil
}

// toHost fills host memory. A copy with other bytes is of no use to a state that is on disk:
// it goes, so that the state can be restored and copied to the device again.
func (s *Store) toHost(st *state, verify bool) error {
	if st.copies == nil {
		return st.elsewhere()
	}
	segments, err := s.fill(st, func(target []*segment) error {
		for _, g := range target {
			if g != nil {
				s.preparePages(g)
			}
		}
		if verify {
			return s.copyBlocks(st, target)
		}
		return s.copyAll(st, target)
	})
	if errors.Is(err, ErrCorrupt) {
		s.unshareCopies(st.copies)
	}
	if errors.Is(err, ErrCorrupt) && st.blocks != nil {
		s.giveUp(st, false, true)
		return fmt.Errorf("%w; the copy on the device is dropped, restore the state from disk", err)
	}
	if err != nil {
		return deviceError(err)
	}
	s.mu.Lock()
	st.segments = segments
	s.mu.Unlock()
	return nil
}

// preparePages has the kernel find the pages of new memory on several cores, and pins them.
func (s *Store) preparePages(g *segment) {
	if !g.warm {
		_ = each(blocksOf(g.bytes), func(i int) error { g.populate(pages(g.mem, 0, g.bytes, i)); return nil })
	}
	s.pin(g)
}

// copyBlocks copies and verifies block after block, while they are in the cache of a core. To verify
// behind one large copy took longer on a GPU: the bytes then come from memory once more.
func (s *Store) copyBlocks(st *state, target []*segment) error {
	return s.fillBlocks(st, target, func(p piece, page []byte) error {
		at := p.at + uint64(p.i)*BlockBytes
		if err := st.copies[p.group].memory.CopyOut(page, at); err != nil {
			return err
		}
		return p.check(page[:p.bytes()])
	})
}

// copyAll copies without a comparison, so the memory stays private.
func (s *Store) copyAll(st *state, target []*segment) error {
	for i, g := range target {
		if g == nil {
			continue
		}
		memory := st.copies[i].memory
		if err := s.eachCopy(g.mem, func(at uint64, part []byte) error { return memory.CopyOut(part, at) }); err != nil {
			return err
		}
	}
	s.unshare(target)
	return sealAll(target)
}

// giveUp frees what a state has in host memory or on the device. state.moving is held.
func (s *Store) giveUp(st *state, host, onDevice bool) {
	var segments []*segment
	var copies []*deviceCopy
	s.mu.Lock()
	if host {
		segments, st.segments = st.segments, nil
	}
	if onDevice {
		copies, st.copies = st.copies, nil
	}
	s.mu.Unlock()
	s.release(segments)
	s.releaseDevice(copies)
}

// DeviceBytes is what the store has of a GPU with a UUID.
func (s *Store) DeviceBytes(uuid string) uint64 {
	if s.device == nil || uuid == "" || s.device.UUID() != uuid {
		return 0
	}
	return s.device.UsedBytes()
}

// holdCopies takes references to what a state has on the device. Store.mu is held.
func (s *Store) holdCopies(st *state) []*deviceCopy {
	for _, c := range st.copies {
		c.refs++
	}
	return slices.Clone(st.copies)
}

// releaseDevice gives references to copies on the device up.
func (s *Store) releaseDevice(copies []*deviceCopy) {
	var dead []*deviceCopy
	s.mu.Lock()
	for _, c := range copies {
		if c.refs--; c.refs == 0 {
			dead = append(dead, c)
			unlist(s.copies, c.id, c)
		}
	}
	s.mu.Unlock()
	for _, c := range dead {
		s.freeCopy(c)
	}
}

// freeCopy frees memory of the device. What its driver does not free stays in use until the
// agent ends, and is counted.
func (s *Store) freeCopy(c *deviceCopy) {
	if err := c.memory.Free(); err != nil {
		s.options.Logger.Error("memory of the device was not freed", "device", s.device.Name(), "bytes", c.bytes, "error", err)
	}
}

// DeviceView is a state on the device that workers may open. Whoever gets one closes it.
type DeviceView struct {
	store  *Store
	state  *state
	copies []*deviceCopy
	// Handles are those of the groups, for cuIpcOpenMemHandle.
	Handles [][]byte
}

// Close gives the view up: the memory may be freed then.
func (v *DeviceView) Close() { v.store.releaseDevice(v.copies) }

// DeviceView returns handles of a state that is on the device. The memory stays until the
// view is closed. It fails with ErrNoDevice, ErrNotFound, ErrOffloaded, ErrNoHandle or
// ErrDeviceFailed.
func (s *Store) DeviceView(k Key) (*DeviceView, error) {
	if s.device == nil {
		return nil, ErrNoDevice
	}
	s.mu.Lock()
	st, err := s.find(k)
	if err == nil && st.copies == nil {
		err = fmt.Errorf("%s is not on the device: %w", k, ErrNotFound)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	v := &DeviceView{store: s, state: st, copies: s.holdCopies(st)}
	s.mu.Unlock()
	for _, c := range v.copies {
		handle, err := c.memory.Handle()
		if err != nil {
			v.Close()
			return nil, fmt.Errorf("pass %s: %w", k, deviceError(err))
		}
		v.Handles = append(v.Handles, handle)
	}
	return v, nil
}
