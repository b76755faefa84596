package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/internal/directio"
	"rota/agent/internal/record"
	"rota/internal/clock"
)

const (
	diskBytesMin = 1 << 20
	// segmentPart of the disk tier is a segment, and at most segmentBytesMax.
	segmentPart     = 16
	segmentBytesMax = 256 << 20
	segmentPrefix   = "segment-"
	// fullPause and errorPause are how long nothing is written after a failed write.
	fullPause  = time.Second
	errorPause = 10 * time.Second
	// writeMax is how long a write may take before memory evicts instead of waiting for it.
	writeMax = 10 * time.Second
	// fullFor is how long the disk tier does not grow after the disk was full.
	fullFor = time.Minute
)

// segment is a file of blocks.
type segment struct {
	id     uint64
	path   string
	file   *os.File
	size   int64               // bytes
	live   int64               // bytes of blocks
	blocks map[*block]struct{} // that are here
	sealed bool                // nothing is written to it any more
}

// disk is the disk tier. Store.mu guards it, and is not held while its files are used. Segments come,
// grow and go by the demoter only.
type disk struct {
	dir      string
	lock     *os.File
	limit    int64 // bytes
	direct   bool  // direct I/O
	manifest manifest
	segments map[uint64]*segment
	active   *segment // nil: none yet
	lastID   uint64
	used     int64 // bytes of all segments

	discarded string    // why Open found nothing it could trust; empty: it did
	broken    error     // the manifest could not be written: the tier has ended
	problem   error     // of the last write; nil: it went well
	writing   time.Time // when the demoter began what waits for the disk; zero: nothing does
	pausedTo  time.Time // no write before
	full      int64     // bytes that the tier may have until fullTo
	fullTo    time.Time

	// Replaced in tests.
	write    func(f *os.File, b []byte, offset int64) (int, error)
	writeMax time.Duration
}

func (d *disk) segmentBytes() int64 { return min(d.limit/segmentPart, segmentBytesMax) }

// takes says whether a block of n bytes may go to disk.
func (d *disk) takes(n int) bool { return d.broken == nil && int64(padded(n)) <= d.limit/4 }

// accepts says whether blocks can be demoted now.
func (d *disk) accepts() bool {
	return d != nil && d.broken == nil && !clock.Now().Before(d.pausedTo) && !d.hangs()
}

// hangs says whether a write takes so long that its disk seems to hang.
func (d *disk) hangs() bool {
	since := func(began time.Time) bool { return !began.IsZero() && time.Since(began) > d.writeMax }
	return since(d.writing) || since(d.manifest.writing)
}

// room is how many bytes the segments may have, with half a segment left for blocks that
// are moved.
func (d *disk) room() int64 {
	room := d.limit
	if clock.Now().Before(d.fullTo) {
		room = min(room, d.full)
	}
	return room - d.segmentBytes()/2
}

// failed notes why a write failed. Until the pause is over, memory evicts instead.
func (d *disk) failed(err error) {
	now := clock.Now()
	d.problem, d.pausedTo = err, now.Add(errorPause)
	switch {
	case errors.Is(err, errNoRoom): // nothing is left to drop, so growing is tried again
		d.pausedTo, d.fullTo = now.Add(fullPause), time.Time{}
	case isFull(err):
		d.pausedTo, d.fullTo = now.Add(fullPause), now.Add(fullFor)
		d.full = d.used + d.segmentBytes()/2
	}
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, errNoRoom)
}

// opening is replaced in tests.
var opening = directio.Open

func writeAt(f *os.File, b []byte, offset int64) (int, error) { return f.WriteAt(b, offset) }

// openDisk takes the folder over and finds what is in it.
func (s *Store) openDisk() (err error) {
	o := s.options
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("disk tier: %w", err)
	}
	d := &disk{dir: o.Dir, limit: int64(o.DiskBytes), segments: map[uint64]*segment{}, write: writeAt, writeMax: writeMax}
	d.manifest = manifest{path: filepath.Join(o.Dir, manifestName), replace: record.ReplaceSoon,
		unwritten: map[uint64]uint64{}, seed: maphash.MakeSeed()}
	if d.lock, err = record.Lock(filepath.Join(o.Dir, "lock")); err != nil {
		return fmt.Errorf("disk tier %s: %w", o.Dir, err)
	}
	s.disk = d
	defer func() {
		if err != nil {
			_ = d.close()
		}
	}()
	if d.direct, err = directio.Supported(d.dir, opening); err != nil {
		return fmt.Errorf("disk tier: %w", err)
	}
	c, err := readManifest(o.Dir)
	switch {
	case err != nil:
		d.discarded = "the manifest is damaged: " + err.Error()
	case c != nil && c.bootID != o.BootID && !c.closed:
		d.discarded, c = "the machine was restarted before the cache had ended", nil
	case c != nil:
		if err := s.restore(c); err != nil {
			return fmt.Errorf("disk tier: %w", err)
		}
	}
	if err := d.removeUnused(); err != nil {
		return fmt.Errorf("disk tier: %w", err)
	}
	if err := s.beginManifest(c); err != nil {
		d.manifest.discard()
		d.broken = fmt.Errorf("manifest: %w", err) // a full disk, most likely: memory serves alone
	}
	s.boundIndex()
	return nil
}

// restore makes what a manifest says the state of the store. Blocks beyond the end of
// their segment are lost.
func (s *Store) restore(c *contents) error {
	blocks := map[hash]*block{}
	for _, h := range c.order {
		l, there := c.blocks[h]
		if !there || blocks[h] != nil {
			continue
		}
		g, err := s.disk.reopen(l.segment)
		if err != nil {
			return err
		}
		if g == nil || int64(l.offset)+int64(padded(int(l.size))) > g.size || l.size > s.options.ValueBytesMax {
			s.counts.lost++
			delete(c.blocks, h)
			continue
		}
		b := s.index.newBlock(int(l.size), l.sums)
		b.hash, b.hashed = h, true
		blocks[h] = b
		s.attach(b, g, int64(l.offset))
	}
	for _, key := range c.byAge() {
		k := c.keys[key]
		if b := blocks[k.hash]; b != nil {
			e := s.index.add(key)
			s.index.put(e, b)
			s.index.setExpiry(e, k.expires)
			e.recorded = true
		}
	}
	return nil
}

// reopen opens a segment of an earlier run; nil if there is none.
func (d *disk) reopen(id uint64) (*segment, error) {
	if g := d.segments[id]; g != nil {
		return g, nil
	}
	path := d.segmentPath(id)
	f, err := opening(path, os.O_RDWR|d.directFlag())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	g := &segment{id: id, path: path, file: f, size: st.Size(), blocks: map[*block]struct{}{}, sealed: true}
	d.add(g)
	return g, nil
}

func (d *disk) add(g *segment) {
	d.segments[g.id] = g
	d.used += g.size
	d.lastID = max(d.lastID, g.id)
}

func (d *disk) directFlag() int {
	if d.direct {
		return unix.O_DIRECT
	}
	return 0
}

func (d *disk) segmentPath(id uint64) string {
	return filepath.Join(d.dir, segmentPrefix+strconv.FormatUint(id, 10))
}

// removeUnused removes the files of segments that hold nothing.
func (d *disk) removeUnused() error {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		digits, ok := strings.CutPrefix(f.Name(), segmentPrefix)
		id, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || d.segments[id] != nil {
			continue
		}
		d.lastID = max(d.lastID, id)
		if err := os.Remove(filepath.Join(d.dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// aside has the demoter do what may wait for the disk, without Store.mu. If it takes too long, memory
// evicts instead of waiting for the demoter.
func (s *Store) aside(do func()) {
	s.disk.writing = time.Now()
	s.mu.Unlock()
	do()
	s.mu.Lock()
	s.disk.writing = time.Time{}
}

// create begins a new active segment.
func (s *Store) create() (g *segment, err error) {
	d := s.disk
	g = &segment{id: d.lastID + 1, path: d.segmentPath(d.lastID + 1), blocks: map[*block]struct{}{}}
	s.aside(func() { g.file, err = opening(g.path, os.O_RDWR|os.O_CREATE|os.O_EXCL|d.directFlag()) })
	if err != nil {
		return nil, err
	}
	d.add(g)
	d.active = g
	return g, nil
}

// drop removes a segment, in which no block is any more. A read that is under way still
// gets what it reads.
func (s *Store) drop(g *segment) {
	d := s.disk
	delete(d.segments, g.id)
	d.used -= g.size
	if d.active == g {
		d.active = nil
	}
	s.settle(context.Background()) // or the next Open would miss what was there
	s.aside(func() {
		_ = os.Remove(g.path) // if it stays, the next Open removes it
		_ = g.file.Close()
	})
}

// attach says that a block is in a segment.
func (s *Store) attach(b *block, g *segment, offset int64) {
	b.segment, b.offset, b.wrote = g, offset, s.tick
	g.blocks[b] = struct{}{}
	g.live += int64(padded(b.size))
	if b.rank == nil {
		b.rank = s.onDisk.PushFront(b)
	}
}

// detach says that a block is on disk no more; its space is garbage.
func (s *Store) detach(b *block) {
	g := b.segment
	delete(g.blocks, b)
	g.live -= int64(padded(b.size))
	b.segment = nil
	s.onDisk.Remove(b.rank)
	b.rank = nil
	if g.live == 0 {
		s.changed.Broadcast() // the demoter removes the file
	}
}

// leaveDisk drops the copy on disk of a block that stays, or whose keys go next.
func (s *Store) leaveDisk(b *block) {
	var keys []string
	for e := b.entries; e != nil; e = e.next {
		if e.recorded {
			keys = append(keys, e.key)
		}
		e.recorded = false
	}
	s.detach(b)
	s.recordOf(evictRecord(b.hash), keys...)
}

// close makes everything durable and says so in the manifest.
func (d *disk) close() error {
	var errs []error
	for _, g := range d.segments {
		if d.broken == nil {
			errs = append(errs, g.file.Sync())
		}
	}
	if err := errors.Join(errs...); err == nil && d.broken == nil && d.manifest.file != nil {
		_, err := d.manifest.file.Write(record.Append(nil, []byte{kindClosed}))
		errs = append(errs, err, d.manifest.file.Sync(), record.SyncDir(d.dir))
	}
	for _, g := range d.segments {
		errs = append(errs, g.file.Close())
	}
	if d.manifest.file != nil {
		errs = append(errs, d.manifest.file.Close())
	}
	return errors.Join(append(errs, d.lock.Close())...)
}
