package disk

import (
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
)

// sector is what a disk writes at once, in bytes.
const sector = 512

// content knows how the durable content of a file differs from the live one,
// which is in the file below.
type content struct {
	live, durable int64 // sizes in bytes
	// stale are the sectors that are not durable as they are.
	stale map[int64]*durable
	// pending are the changes since the last fsync, oldest first.
	pending []change
	// settled is how many changes have left pending.
	settled int
}

// durable is the durable image of a sector; nil is a sector of zeros, as is
// whatever lies behind the end.
type durable struct {
	image []byte
	// changed is the number of the newest change that touched the sector.
	changed int
}

// change is a write or a truncation.
type change struct {
	first int64    // sector
	after [][]byte // images of the sectors from first on; nil for zeros
	size  int64    // of the file, after it
	cut   bool     // it made the file shorter
}

// sectors returns the range of sectors that hold the bytes [off, end).
func sectors(off, end int64) (first, last int64) {
	return off / sector, (end + sector - 1) / sector
}

// images reads sectors of the file below as they are now.
func images(f io.ReaderAt, first, last int64) ([][]byte, error) {
	buf := make([]byte, (last-first)*sector)
	if _, err := f.ReadAt(buf, first*sector); err != nil && err != io.EOF {
		return nil, err
	}
	return slices.Collect(slices.Chunk(buf, sector)), nil
}

// remember keeps the durable images of sectors that the next change touches.
func (c *content) remember(first int64, before [][]byte) {
	if c.stale == nil {
		c.stale = make(map[int64]*durable)
	}
	for i, image := range before {
		s := first + int64(i)
		if c.stale[s] == nil {
			c.stale[s] = &durable{image: image}
		}
		c.stale[s].changed = c.now()
	}
}

func (c *content) write(f *os.File, data []byte, off int64) error {
	end := off + int64(len(data))
	first, last := sectors(off, end)
	before, err := images(f, first, last)
	if err != nil {
		return err
	}
	c.remember(first, before)
	if _, err := f.WriteAt(data, off); err != nil {
		return err
	}
	after := slices.Concat(before...)
	copy(after[off-first*sector:], data)
	c.live = max(c.live, end)
	c.pending = append(c.pending, change{first: first, after: slices.Collect(slices.Chunk(after, sector)), size: c.live})
	return nil
}

func (c *content) truncate(f *os.File, size int64) error {
	if size == c.live {
		return nil
	}
	ch := change{size: size, cut: size < c.live}
	if ch.cut {
		first, last := sectors(size, c.live)
		before, err := images(f, first, last)
		if err != nil {
			return err
		}
		c.remember(first, before)
		ch.first, ch.after = first, make([][]byte, len(before))
		if kept := size % sector; kept > 0 {
			ch.after[0] = append(slices.Clone(before[0][:kept]), make([]byte, sector-kept)...)
		}
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	c.live = size
	c.pending = append(c.pending, ch)
	return nil
}

// now is the number of changes that have been made, for settle and drop.
func (c *content) now() int { return c.settled + len(c.pending) }

// settle makes the changes up to a number of them durable.
func (c *content) settle(until int) {
	n := until - c.settled
	if n <= 0 {
		return // a later fsync has overtaken this one
	}
	for i, ch := range c.pending[:n] {
		c.durable = ch.size
		ch.each(func(s int64, image []byte) {
			if c.stale[s].changed == c.settled+i {
				delete(c.stale, s)
			} else {
				c.stale[s].image = image
			}
		})
	}
	c.pending, c.settled = slices.Clone(c.pending[n:]), until
}

// drop forgets that the sectors of the changes up to a number of them are to be
// written, as Linux does when an fsync fails. Sizes, and that sectors were cut
// off, are metadata and stay.
func (c *content) drop(until int) {
	for i := range max(0, until-c.settled) {
		switch ch := &c.pending[i]; {
		case !ch.cut:
			ch.after = nil
		case len(ch.after) > 0 && ch.after[0] != nil: // the sector that was cut in two
			ch.first, ch.after = ch.first+1, ch.after[1:]
		}
	}
}

func (ch *change) each(visit func(s int64, image []byte)) {
	for i, image := range ch.after {
		visit(ch.first+int64(i), image)
	}
}

// remains is what a power loss leaves: the size, and the sectors that differ
// from the live ones. Without r nothing survives that was not synced.
func (c *content) remains(r *rand.Rand) (size int64, differ map[int64][]byte) {
	differ = make(map[int64][]byte, len(c.stale))
	for s, d := range c.stale {
		differ[s] = d.image
	}
	if r == nil {
		return c.durable, differ
	}
	sizes := r.IntN(len(c.pending) + 1) // how many changes of the size survived
	from, to := c.between(sizes)
	for _, ch := range c.pending[:from] {
		ch.each(func(s int64, image []byte) { differ[s] = image })
	}
	states := make(map[int64][][]byte)
	for _, ch := range c.pending[from:to] {
		ch.each(func(s int64, image []byte) { states[s] = append(states[s], image) })
	}
	for _, s := range slices.Sorted(maps.Keys(states)) {
		if k := r.IntN(len(states[s]) + 1); k > 0 {
			differ[s] = states[s][k-1]
		}
	}
	size = c.durable
	if sizes > 0 {
		size = c.pending[sizes-1].size
	}
	return size, differ
}

// between returns the changes that lie between the same truncations as the
// given one.
func (c *content) between(sizes int) (from, to int) {
	for to < len(c.pending) && (to < sizes || !c.pending[to].cut) {
		to++
		if c.pending[to-1].cut {
			from = to
		}
	}
	return from, to
}
