package tensor

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"rota/agent/internal/directio"
)

// hash is a BLAKE3 hash.
type hash [32]byte

// workersMax is how many goroutines hash, read or write blocks of one operation. Most wait
// for a disk, so there may be more of them than cores.
const workersMax = 8

// hugeBytesMin is the least size of memory for which huge pages are asked for: the last one may be
// used in part only.
const hugeBytesMin = 64 << 20

// segment is a memfd: the tensors of a group of a state.
type segment struct {
	file  *os.File // its descriptor is for workers; read-only once sealed
	bytes uint64
	mem   []byte // the agent's mapping
	refs  int    // Store.mu guards it
	// filled means that the agent writes it, and no worker.
	filled bool
	// passed means that a worker may map it for reading. Store.mu guards it.
	passed bool
	// private means that its bytes were not compared, or are wrong: no other state may get them in
	// place of its own. Store.mu guards it.
	private bool
	// unpin gives up what holds the memory in place for copies; nil: nothing does.
	unpin   func()
	pinning sync.Once
	// warm means that the agent has filled it once: the kernel has given it all of its pages,
	// and refuses other writers.
	warm bool
	// id says what is in it, once sealed.
	id hash
}

// newSegment makes a memfd of a size that nobody can change, mapped for writing if the
// agent is to fill it, and for reading if a worker is.
func newSegment(bytes uint64, fill bool) (*segment, error) {
	fd, err := unix.MemfdCreate("rota-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	s := &segment{file: os.NewFile(uintptr(fd), "memfd:rota-state"), bytes: bytes, filled: fill}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		s.close()
		return nil, fmt.Errorf("memfd of %d bytes: %w", bytes, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		s.close()
		return nil, fmt.Errorf("seal the size of a memfd: %w", err)
	}
	if fill {
		if s.mem, err = unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			s.close()
			return nil, fmt.Errorf("map a memfd: %w", err)
		}
		if bytes >= hugeBytesMin { // pages that are larger are fewer to find and to pin
			_ = unix.Madvise(s.mem, unix.MADV_HUGEPAGE)
		}
	}
	return s, nil
}

// seal ends all writing, and maps the memory for reading. It fails with ErrMapped if a
// worker still maps it for writing; it may be called again then.
func (s *segment) seal() error {
	fd := int(s.file.Fd())
	if s.unpin != nil { // an earlier commit has pinned it, and failed
		s.unpin()
		s.unpin = nil
	}
	if s.mem != nil {
		if err := unix.Munmap(s.mem); err != nil {
			return err
		}
		s.mem = nil
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SEAL)
	if errors.Is(err, unix.EBUSY) {
		return ErrMapped
	}
	if err != nil && !errors.Is(err, unix.EPERM) { // EPERM: an earlier commit has sealed it
		return fmt.Errorf("seal a memfd: %w", err)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_WRITE == 0 {
		return fmt.Errorf("%w: the worker has sealed the memfd so that it stays writable", ErrInvalid)
	}
	reader, err := openReader(fd)
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(int(reader.Fd()), 0, int(s.bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = reader.Close()
		return fmt.Errorf("map a memfd: %w", err)
	}
	_ = s.file.Close()
	s.file, s.mem = reader, mem
	return nil
}

// populate makes room for bytes that the agent is about to write to a part of the memory.
// Without it the kernel finds the pages one at a time while it sets up the I/O, which takes
// longer than the I/O. Kernels before 5.14 do so all the same.
func (s *segment) populate(part []byte) {
	if !s.warm {
		_ = unix.Madvise(part, unix.MADV_POPULATE_WRITE)
	}
}

// sealFilled seals what the agent has filled and no worker knows. The mapping stays, and stays
// writable: to find its pages again, or to change what they allow, takes longer than to fill
// them. The kernel refuses every other way to write.
func (s *segment) sealFilled() error {
	if s.warm { // it was sealed before
		return nil
	}
	fd := int(s.file.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal a memfd: %w", err)
	}
	reader, err := openReader(fd)
	if err != nil {
		return err
	}
	_ = s.file.Close()
	s.file, s.warm = reader, true
	return nil
}

// openReader opens a memfd for reading. Kernels before 6.7 map a sealed memfd shared only if
// its descriptor cannot write.
func openReader(fd int) (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("open a memfd for reading: %w", err)
	}
	return f, nil
}

// close gives the agent's hold on the memory up. What workers have mapped stays for them.
func (s *segment) close() {
	if s.unpin != nil {
		s.unpin()
		s.unpin = nil
	}
	if s.mem != nil {
		_ = unix.Munmap(s.mem)
		s.mem = nil
	}
	_ = s.file.Close()
}

// blocksOf is how many blocks n bytes have.
func blocksOf(n uint64) int { return int((n + BlockBytes - 1) / BlockBytes) }

// blockBytes is the size of block i of n bytes.
func blockBytes(n uint64, i int) uint64 { return min(BlockBytes, n-uint64(i)*BlockBytes) }

// pages are the bytes of block i of a tensor of n bytes at a place of mem, and after them
// what fills their last page.
func pages(mem []byte, at, n uint64, i int) []byte {
	from := at + uint64(i)*BlockBytes
	return mem[from : from+directio.Padded(blockBytes(n, i))]
}

// each calls f for 0 to n-1 on several goroutines and returns the first error.
func each(n int, f func(i int) error) error { return eachOf(n, workersMax, f) }

// eachOf is each with a number of goroutines.
func eachOf(n, workers int, f func(i int) error) error {
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for range min(n, workers) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					once.Do(func() { first = err })
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// matches says whether bytes are those of a hash.
func matches(b []byte, h hash) error {
	if blake3.Sum256(b) != h {
		return ErrCorrupt
	}
	return nil
}
