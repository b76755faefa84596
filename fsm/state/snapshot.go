package state

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"
)

// A snapshot is a magic string, the version of its layout, the feature level and the
// name of the release that raised it, then one compressed stream: for each table its
// number, the number of its rows and the rows, each with its length; at the end the state
// hash and a checksum of all before it. What rows and tables there are is a matter of the
// level; the version changes only with the layout.
const (
	snapshotMagic   = "ROTASNAP"
	snapshotVersion = 5
	// snapshotUnleveled is the layout of builds from before feature levels: it says
	// neither level nor release.
	snapshotUnleveled = 4
	snapshotBlock     = 1 << 20 // bytes that are compressed together
	rowBytesMax       = 1 << 20
	releaseBytesMax   = 1 << 10
)

// Errors of Restore. All wrap what went wrong in detail.
var (
	ErrNotSnapshot     = errors.New("not a rota snapshot")
	ErrSnapshotVersion = errors.New("snapshot has a version that this build does not read")
	ErrSnapshotCorrupt = errors.New("snapshot is corrupt")
)

// Save streams the state. The state must not be written to meanwhile: save a
// Copy.
func (s *State) Save(w io.Writer) error {
	if _, err := w.Write(s.snapshotHead()); err != nil {
		return err
	}
	z := s2.NewWriter(w, s2.WriterConcurrency(1), s2.WriterBlockSize(snapshotBlock))
	out := &saver{w: bufio.NewWriterSize(z, 1<<16), sum: xxhash.New()}
	out.rows(tableMeta, 1, func(row func(coder)) { row(&s.meta) })
	for i := range tables {
		tables[i].save(db(s), out)
	}
	events := &db(s).events
	out.rows(tableEvents, events.next-events.first, func(row func(coder)) {
		for rev := events.first; rev < events.next; rev++ {
			row(events.at(rev))
		}
	})
	if err := out.finish(s.Hash()); err != nil {
		return err
	}
	return z.Close()
}

func (s *State) snapshotHead() []byte {
	head := binary.LittleEndian.AppendUint32([]byte(snapshotMagic), snapshotVersion)
	head = binary.AppendUvarint(head, uint64(s.meta.Level))
	head = binary.AppendUvarint(head, uint64(len(s.meta.Release)))
	return append(head, s.meta.Release...)
}

// coder is a row that describes its own encoding.
type coder interface{ code(*codec) }

// saver writes rows and sums them. The first error sticks.
type saver struct {
	w   *bufio.Writer
	sum *xxhash.Digest
	enc codec
	err error
}

func saveTable[K cmp.Ordered, R any, P rowOf[R]](out *saver, t *table[K, R, P]) {
	out.rows(t.id, uint64(t.rows.Len()), func(row func(coder)) {
		t.rows.Scan(func(_ K, c cell[R]) bool {
			row(P(c.row))
			return out.err == nil
		})
	})
}

func (o *saver) rows(table byte, n uint64, each func(row func(coder))) {
	o.write(binary.AppendUvarint([]byte{table}, n))
	var length [binary.MaxVarintLen64]byte
	each(func(r coder) {
		o.enc.buf = o.enc.buf[:0]
		o.enc.row(r)
		o.write(length[:binary.PutUvarint(length[:], uint64(len(o.enc.buf)))])
		o.write(o.enc.buf)
	})
}

func (o *saver) write(b []byte) {
	if o.err == nil {
		_, _ = o.sum.Write(b) // never fails
		_, o.err = o.w.Write(b)
	}
}

func (o *saver) finish(hash uint64) error {
	o.write(binary.LittleEndian.AppendUint64([]byte{0}, hash))
	o.write(binary.LittleEndian.AppendUint64(nil, o.sum.Sum64()))
	if o.err != nil {
		return o.err
	}
	return o.w.Flush()
}

// Restore reads a snapshot into a new state and checks that it hashes to what
// was saved. A snapshot of a level that this build does not know yet is a *Beyond, unless
// all of it can be read. One of a level that it no longer knows is read: its rows mean
// the same.
func Restore(r io.Reader) (*State, error) {
	raw := bufio.NewReader(r)
	level, release, err := readHead(raw)
	if err != nil {
		return nil, err
	}
	in := &loader{r: bufio.NewReaderSize(s2.NewReader(raw, s2.ReaderMaxBlockSize(snapshotBlock), s2.ReaderAllocBlock(1<<16)), 1<<16), sum: xxhash.New()}
	s := New()
	switch err := in.load(s); {
	case err != nil && level > LevelMax:
		return nil, &Beyond{level, release, LevelMin, LevelMax}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrSnapshotCorrupt, err)
	}
	return s, nil
}

// readHead reads what is before the tables.
func readHead(r *bufio.Reader) (level Level, release string, err error) {
	head := make([]byte, len(snapshotMagic)+4)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:len(snapshotMagic)]) != snapshotMagic {
		return 0, "", ErrNotSnapshot
	}
	switch v := binary.LittleEndian.Uint32(head[len(snapshotMagic):]); v {
	case snapshotUnleveled:
		return 0, "", nil
	case snapshotVersion:
	default:
		return 0, "", fmt.Errorf("%w: %d, this build reads %d and %d", ErrSnapshotVersion, v, snapshotUnleveled, snapshotVersion)
	}
	number, err := binary.ReadUvarint(r)
	n, err2 := binary.ReadUvarint(r)
	if err != nil || err2 != nil || n > releaseBytesMax {
		return 0, "", ErrSnapshotCorrupt
	}
	name := make([]byte, n)
	if _, err := io.ReadFull(r, name); err != nil {
		return 0, "", ErrSnapshotCorrupt
	}
	return Level(number), string(name), nil
}

type loader struct {
	r   *bufio.Reader
	sum *xxhash.Digest
	buf []byte
}

// ReadByte lets binary.ReadUvarint read summed bytes.
func (l *loader) ReadByte() (byte, error) {
	b, err := l.r.ReadByte()
	_, _ = l.sum.Write([]byte{b})
	return b, err
}

func (l *loader) load(s *State) (err error) {
	defer func() { // a row that breaks an invariant is corruption of the file
		switch r := recover().(type) {
		case nil:
		case *Corruption:
			err = r
		default:
			panic(r)
		}
	}()
	for first := true; ; first = false {
		table, err := l.ReadByte()
		if err != nil {
			return err
		}
		if table == 0 {
			return l.finish(s)
		}
		n, err := binary.ReadUvarint(l)
		if err != nil {
			return err
		}
		if first != (table == tableMeta) || first && n != 1 { // what is kept of other rows depends on it
			return errors.New("the row of the cluster is not there once, before all others")
		}
		for ; n > 0; n-- {
			if err := l.row(s, table); err != nil {
				return fmt.Errorf("table %d: %w", table, err)
			}
		}
	}
}

func (l *loader) row(s *State, table byte) error {
	n, err := binary.ReadUvarint(l)
	if err != nil {
		return err
	}
	if n > rowBytesMax {
		return fmt.Errorf("row of %d bytes", n)
	}
	if uint64(cap(l.buf)) < n {
		l.buf = make([]byte, n)
	}
	l.buf = l.buf[:n]
	if _, err := io.ReadFull(l.r, l.buf); err != nil {
		return err
	}
	_, _ = l.sum.Write(l.buf)
	return s.putEncoded(table, l.buf)
}

// putEncoded decodes a row and stores it.
func (s *State) putEncoded(table byte, b []byte) error {
	switch table {
	case tableMeta:
		return decodeInto(b, new(Meta), func(r *Meta) {
			s.meta = *r
			db(s).events = newEventRing(0)
		})
	case tableEvents:
		return decodeInto(b, new(Event), s.restoreEvent)
	}
	if t := tableOf(table); t != nil {
		return t.load(s, b)
	}
	return errors.New("unknown table")
}

func (s *State) restoreEvent(e *Event) {
	d := db(s)
	if d.events.first == 0 {
		d.events = newEventRing(e.Revision)
	}
	Assert(e.Revision == d.events.next, "event %d follows %d", e.Revision, d.events.next)
	d.events.push(d.enc, *e, s.meta.Settings.EventsMax)
}

func decodeInto[R any, P rowOf[R]](b []byte, r P, store func(*R)) error {
	c := codec{buf: b, decoding: true}
	r.code(&c)
	if c.err != nil || len(c.buf) > 0 {
		return errTruncated
	}
	store(r)
	return nil
}

func (l *loader) finish(s *State) error {
	if db(s).events.first == 0 {
		db(s).events = newEventRing(s.meta.Revision + 1)
	}
	var hash, sum [8]byte
	if _, err := io.ReadFull(l.r, hash[:]); err != nil {
		return err
	}
	_, _ = l.sum.Write(hash[:])
	if _, err := io.ReadFull(l.r, sum[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(sum[:]) != l.sum.Sum64() {
		return errors.New("checksum does not match")
	}
	if want := binary.LittleEndian.Uint64(hash[:]); want != s.Hash() {
		return fmt.Errorf("state hashes to %016x, saved was %016x", s.Hash(), want)
	}
	return nil
}
