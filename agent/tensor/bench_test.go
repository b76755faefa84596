package tensor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkMoves moves states of two sizes to disk and back, and beside it as many bytes
// with memcpy and with plain direct I/O on the same file system: one file, blocks of the
// same size, as many at once, synced once. Set TMPDIR to a folder of the disk in question.
// The contents of a state change from one offload to the next, or nothing would be written.
// Each offload and restore alternates with a plain pass, so that a machine which is busy
// slows both down: "of-plain" is the time of the plain passes by that of the moves.
func BenchmarkMoves(b *testing.B) {
	for _, size := range []int{64 << 20, 1 << 30} {
		name := fmt.Sprintf("%dMiB", size>>20)
		b.Run("memcpy/"+name, func(b *testing.B) { benchMemcpy(b, size) })
		b.Run("plain-write/"+name, func(b *testing.B) { benchPlain(b, size, true) })
		b.Run("plain-read/"+name, func(b *testing.B) { benchPlain(b, size, false) })
		b.Run("commit/"+name, func(b *testing.B) { benchCommit(b, size) })
		b.Run("offload/"+name, func(b *testing.B) { benchOffload(b, size) })
		b.Run("restore/"+name, func(b *testing.B) { benchRestore(b, size) })
	}
}

func anonymous(b *testing.B, size int) []byte {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	must(b, err)
	b.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

func benchMemcpy(b *testing.B, size int) {
	from, to := anonymous(b, size), anonymous(b, size)
	b.SetBytes(int64(size))
	for b.Loop() {
		copy(to, from)
	}
}

// plain is a file of plain direct I/O, and memory of its size.
type plain struct {
	b     *testing.B
	f     *os.File
	mem   []byte
	spent time.Duration
}

func newPlain(b *testing.B, size int) *plain {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "plain"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		b.Skipf("the file system refuses direct I/O: %v", err)
	}
	b.Cleanup(func() { _ = f.Close() })
	p := &plain{b: b, f: f, mem: anonymous(b, size)}
	p.write()
	p.spent = 0
	return p
}

func (p *plain) write() { p.pass(p.f.WriteAt, p.f.Sync) }
func (p *plain) read()  { p.pass(p.f.ReadAt, func() error { return nil }) }

func (p *plain) pass(io func([]byte, int64) (int, error), end func() error) {
	from := time.Now()
	must(p.b, each(len(p.mem)/BlockBytes, func(i int) error {
		_, err := io(p.mem[i*BlockBytes:(i+1)*BlockBytes], int64(i)*BlockBytes)
		return err
	}))
	must(p.b, end())
	p.spent += time.Since(from)
}

// report compares the plain passes with what the benchmark measured.
func (p *plain) report() {
	p.b.ReportMetric(p.spent.Seconds()/p.b.Elapsed().Seconds(), "of-plain")
}

func benchPlain(b *testing.B, size int, write bool) {
	p := newPlain(b, size)
	b.SetBytes(int64(size))
	for b.Loop() {
		if write {
			p.write()
		} else {
			p.read()
		}
	}
}

func benchStore(b *testing.B, size int) *Store {
	s := open(b, Options{MemoryBytes: uint64(3 * size), Dir: b.TempDir(), DiskBytes: uint64(3 * size)})
	if !s.Stat().DirectIO {
		b.Skip("the file system refuses direct I/O")
	}
	return s
}

// distinct creates a state each of whose blocks only this version has.
func distinct(b *testing.B, s *Store, version uint64, size int) (*Creation, Key) {
	k := Key{"bench", version, 0}
	c, err := s.Create(k, []Tensor{{Name: "w", DType: "uint8", Shape: []uint64{uint64(size)}}})
	must(b, err)
	mem, err := unix.Mmap(int(c.segments[0].file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(b, err)
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE) // as the Python client does
	for at := 0; at < size; at += 4096 {
		copy(mem[at:], fmt.Sprint(version, at))
	}
	must(b, unix.Munmap(mem))
	return c, k
}

func benchCommit(b *testing.B, size int) {
	s := open(b, Options{MemoryBytes: uint64(3 * size)})
	b.SetBytes(int64(size))
	for i := range b.N {
		b.StopTimer()
		c, k := distinct(b, s, uint64(i), size)
		b.StartTimer()
		_, err := c.Commit()
		b.StopTimer()
		must(b, err)
		must(b, s.Drop(k))
	}
}

func benchOffload(b *testing.B, size int) {
	s, p := benchStore(b, size), newPlain(b, size)
	b.SetBytes(int64(size))
	b.ResetTimer() // to prepare takes longer than to offload
	for i := range b.N {
		b.StopTimer()
		p.write()
		c, k := distinct(b, s, uint64(i), size)
		_, err := c.Commit()
		must(b, err)
		b.StartTimer()
		m := offload(b, s, k)
		b.StopTimer()
		if m.WrittenBytes != uint64(size) {
			b.Fatalf("%+v", m)
		}
		must(b, s.Drop(k))
	}
	p.report()
}

func benchRestore(b *testing.B, size int) {
	s, p := benchStore(b, size), newPlain(b, size)
	c, k := distinct(b, s, 0, size)
	_, err := c.Commit()
	must(b, err)
	offload(b, s, k)
	b.SetBytes(int64(size))
	for b.Loop() {
		must(b, s.Restore(k))
		b.StopTimer()
		offload(b, s, k) // writes nothing
		p.read()
		b.StartTimer()
	}
	b.StopTimer()
	p.report()
}
