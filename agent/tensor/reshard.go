package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// box is a part of a tensor: where it begins and how long it is in each dimension.
type box struct{ offset, shape []uint64 }

func (b box) empty() bool { return slices.Contains(b.shape, 0) }

// intersect returns what two boxes have in common, which may be empty.
func (b box) intersect(c box) box {
	both := box{make([]uint64, len(b.shape)), make([]uint64, len(b.shape))}
	for i := range b.shape {
		from := max(b.offset[i], c.offset[i])
		to := min(b.offset[i]+b.shape[i], c.offset[i]+c.shape[i])
		both.offset[i], both.shape[i] = from, max(from, to)-from
	}
	return both
}

// without returns b less a box that lies in it, as boxes that do not overlap: in each
// dimension what is before and what is behind, and the middle for the next dimension.
func (b box) without(c box) (rest []box) {
	middle := box{slices.Clone(b.offset), slices.Clone(b.shape)}
	for i := range b.shape {
		for _, part := range [][2]uint64{{middle.offset[i], c.offset[i]}, {c.offset[i] + c.shape[i], middle.offset[i] + middle.shape[i]}} {
			if part[0] < part[1] {
				r := box{slices.Clone(middle.offset), slices.Clone(middle.shape)}
				r.offset[i], r.shape[i] = part[0], part[1]-part[0]
				rest = append(rest, r)
			}
		}
		middle.offset[i], middle.shape[i] = c.offset[i], c.shape[i]
	}
	return rest
}

// runs calls f for each run of elements of part that lie next to each other both in the
// shard and in the target, with the positions of its first element and its length.
func runs(part, shard, target box, f func(from, to, n uint64) error) error {
	if part.empty() {
		return nil
	}
	d := len(part.shape)
	n := uint64(1)
	for d > 0 { // a dimension joins the run if all behind it are whole in both
		n *= part.shape[d-1]
		d--
		if part.shape[d] != shard.shape[d] || part.shape[d] != target.shape[d] {
			break
		}
	}
	at := slices.Clone(part.offset)
	for {
		if err := f(position(at, shard), position(at, target), n); err != nil {
			return err
		}
		i := d - 1
		for ; i >= 0; i-- {
			if at[i]++; at[i] < part.offset[i]+part.shape[i] {
				break
			}
			at[i] = part.offset[i]
		}
		if i < 0 {
			return nil
		}
	}
}

// position is the number of an element of a box, in row-major order.
func position(at []uint64, b box) (n uint64) {
	for i := range at {
		n = n*b.shape[i] + at[i] - b.offset[i]
	}
	return n
}

// Slice says which part of a tensor is wanted. Without offset and shape it is all of it.
type Slice struct {
	Deployment string   `json:"deployment"`
	Version    uint64   `json:"version"`
	Name       string   `json:"name"`
	Offset     []uint64 `json:"offset,omitempty"`
	Shape      []uint64 `json:"shape,omitempty"`
}

// shard is a tensor of a rank with where its bytes are.
type shard struct {
	*tensor
	src  *source
	key  Key
	last piece // the block that was read last, verified
	page []byte
	free func()
}

func (h *shard) close() {
	if h.free != nil {
		h.free()
	}
	h.src.close()
}

// Read assembles a slice from the shards of all ranks of a version, in memory or on disk,
// into a new memfd, which is the caller's. Only the blocks that the slice lies in are read,
// and each is verified. It fails with ErrInvalid, ErrNotFound, ErrHole, ErrMemory or
// ErrCorrupt.
func (s *Store) Read(want Slice) (*Slab, error) {
	shards, err := s.shards(want)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, h := range shards {
			h.close()
		}
	}()
	first := shards[0]
	target, err := want.target(first.Tensor)
	if err != nil {
		return nil, err
	}
	for _, h := range shards {
		if h.DType != first.DType || !slices.Equal(h.global(), first.global()) {
			return nil, fmt.Errorf("%w: %s and %s disagree on the type or the whole shape of %s", ErrInvalid, h.key, first.key, want.Name)
		}
	}
	spec := Tensor{Name: want.Name, DType: first.DType, Shape: target.shape, Global: first.global(), Offset: target.offset}
	_, _, sizes, err := layout([]Tensor{spec})
	if err != nil {
		return nil, err
	}
	segments, err := s.allocate(first.key, sizes, true)
	if err != nil {
		return nil, err
	}
	slab := &Slab{store: s, Tensor: spec, segment: segments[0]}
	s.mu.Lock()
	slab.segment.passed = true
	s.mu.Unlock()
	if err = s.assemble(slab.segment.mem, target, shards); err == nil {
		err = slab.segment.sealFilled()
	}
	if err != nil {
		slab.Close()
		return nil, fmt.Errorf("read %s of %s/%d: %w", want.Name, want.Deployment, want.Version, err)
	}
	return slab, nil
}

// Slab is a slice in a memfd. Whoever gets one closes it.
type Slab struct {
	Tensor
	store   *Store
	segment *segment
}

// Close gives the slab up. What workers have mapped stays for them.
func (b *Slab) Close() { b.store.release([]*segment{b.segment}) }

// target checks the slice against the tensor that it is cut from.
func (w Slice) target(t Tensor) (box, error) {
	if w.Offset == nil && w.Shape == nil {
		return box{make([]uint64, len(t.Shape)), t.global()}, nil
	}
	cut := Tensor{Name: w.Name, DType: t.DType, Shape: w.Shape, Global: t.global(), Offset: w.Offset}
	if len(w.Shape) != len(t.Shape) || len(w.Offset) != len(t.Shape) {
		return box{}, fmt.Errorf("%w: %s has %d dimensions; give offset and shape as many", ErrInvalid, w.Name, len(t.Shape))
	}
	return box{w.Offset, w.Shape}, cut.check()
}

// shards finds the tensor in all ranks of a version, lowest rank first.
func (s *Store) shards(want Slice) (found []*shard, err error) {
	s.mu.Lock()
	var states []*state
	for k, st := range s.states {
		if k.Deployment == want.Deployment && k.Version == want.Version && st.damaged == nil {
			states = append(states, st)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(states, func(a, b *state) int { return compareKeys(a.key, b.key) })
	for _, st := range states {
		for _, t := range st.tensors {
			if t.Name != want.Name {
				continue
			}
			src, err := s.source(st)
			if errors.Is(err, ErrNotFound) {
				continue // dropped meanwhile
			}
			if err != nil {
				for _, h := range found {
					h.close()
				}
				return nil, err
			}
			found = append(found, &shard{tensor: t, src: src, key: st.key})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("tensor %s of %s/%d: %w", want.Name, want.Deployment, want.Version, ErrNotFound)
	}
	return found, nil
}

// assemble copies each element of the target from the first shard that has it.
func (s *Store) assemble(mem []byte, target box, shards []*shard) error {
	missing := []box{target}
	if target.empty() {
		missing = nil
	}
	for _, h := range shards {
		var rest []box
		for _, m := range missing {
			part := m.intersect(h.box())
			if part.empty() {
				rest = append(rest, m)
				continue
			}
			rest = append(rest, m.without(part)...)
			size := dtypes[h.DType]
			err := runs(part, h.box(), target, func(from, to, n uint64) error {
				return h.copy(mem[to*size:(to+n)*size], from*size)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", h.key, err)
			}
		}
		missing = rest
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: offset %v, shape %v; are all ranks committed?", ErrHole, missing[0].offset, missing[0].shape)
	}
	return nil
}

// copy fills dst with bytes of the shard.
func (h *shard) copy(dst []byte, from uint64) error {
	for len(dst) > 0 {
		page, err := h.verified(int(from / BlockBytes))
		if err != nil {
			return err
		}
		n := copy(dst, page[from%BlockBytes:])
		dst, from = dst[n:], from+uint64(n)
	}
	return nil
}

// verified returns a block whose hash was compared. The last one is remembered.
func (h *shard) verified(i int) ([]byte, error) {
	p := piece{h.tensor, i}
	if h.last == p {
		return h.page, nil
	}
	if h.src.store.closing.Load() {
		return nil, ErrClosed
	}
	page, free, err := h.src.page(p)
	if err == nil && h.src.segments != nil {
		if err = matches(page[:p.bytes()], p.hash()); err != nil {
			h.src.store.unshare(h.src.segments)
		}
	}
	if err != nil {
		h.src.store.counts.corrupt.Add(1)
		return nil, fmt.Errorf("tensor %s, block %d: %w", h.Name, i, err)
	}
	if h.free != nil {
		h.free()
	}
	h.last, h.page, h.free = p, page[:p.bytes()], free
	return h.page, nil
}
