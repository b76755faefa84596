package tensor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkMoves moves states of two sizes to disk and back, and beside it as many bytes
// with memcpy and with plain direct I/O on the same file system: one file, blocks of the
// same size, as many at once, synced once. Set TMPDIR to a folder of the disk in question.
// The contents of a state change from one offload to the next, or nothing would be written.
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

func benchPlain(b *testing.B, size int, write bool) {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "plain"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		b.Skipf("the file system refuses direct I/O: %v", err)
	}
	defer f.Close()
	mem := anonymous(b, size)
	pass := func(io func([]byte, int64) (int, error)) {
		must(b, each(size/BlockBytes, func(i int) error {
			_, err := io(mem[i*BlockBytes:(i+1)*BlockBytes], int64(i)*BlockBytes)
			return err
		}))
	}
	pass(f.WriteAt)
	b.SetBytes(int64(size))
	for b.Loop() {
		if write {
			pass(f.WriteAt)
			must(b, f.Sync())
		} else {
			pass(f.ReadAt)
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
	s := benchStore(b, size)
	b.SetBytes(int64(size))
	for i := range b.N {
		b.StopTimer()
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
}

func benchRestore(b *testing.B, size int) {
	s := benchStore(b, size)
	c, k := distinct(b, s, 0, size)
	_, err := c.Commit()
	must(b, err)
	offload(b, s, k)
	b.SetBytes(int64(size))
	for b.Loop() {
		must(b, s.Restore(k))
		b.StopTimer()
		offload(b, s, k) // writes nothing
		b.StartTimer()
	}
}
