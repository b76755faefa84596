package tensor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"lukechampine.com/blake3"

	"rota/agent/internal/directio"
)

// hash is a BLAKE3 hash.
type hash [32]byte

// workersMax is how many goroutines hash, read or write blocks of one operation.
const workersMax = 8

// segment is a memfd: the tensors of a group of a state.
type segment struct {
	file  *os.File // its descriptor is for workers; read-only once sealed
	bytes uint64
	mem   []byte // the agent's mapping
	refs  int    // Store.mu guards it
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
	s := &segment{file: os.NewFile(uintptr(fd), "memfd:rota-state"), bytes: bytes}
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
	}
	return s, nil
}

// seal ends all writing, and maps the memory for reading. It fails with ErrMapped if a
// worker still maps it for writing; it may be called again then.
func (s *segment) seal() error {
	fd := int(s.file.Fd())
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
	// Kernels before 6.7 map a sealed memfd shared only if its descriptor cannot write.
	reader, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("open a memfd for reading: %w", err)
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

const (
	sealTries = 100
	sealPause = 20 * time.Millisecond
)

// sealFilled seals what the agent has filled and no worker knows. The kernel may still hold
// pages for direct I/O that has ended a moment ago, and refuses the seal until it lets go.
func (s *segment) sealFilled() (err error) {
	for range sealTries {
		if err = s.seal(); !errors.Is(err, ErrMapped) {
			return err
		}
		time.Sleep(sealPause)
	}
	return fmt.Errorf("the kernel holds pages of a memfd that nobody maps: %w", unix.EBUSY)
}

// close gives the agent's hold on the memory up. What workers have mapped stays for them.
func (s *segment) close() {
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
func each(n int, f func(i int) error) error {
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for range min(n, workersMax, max(2, runtime.GOMAXPROCS(0))) {
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
