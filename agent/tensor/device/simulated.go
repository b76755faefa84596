package device

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const pageBytes = 4096

// simulated is memory of the process that stands for that of a GPU. Like a GPU it gives out
// pages that need not lie next to each other, so it never runs out by being fragmented.
type simulated struct {
	mem []byte

	mu   sync.Mutex
	free []extent // by offset; no two touch
	used uint64
}

// extent is a run of pages.
type extent struct{ at, bytes uint64 }

func openSimulated(bytes uint64) (Device, []string, error) {
	if bytes < pageBytes || bytes > math.MaxInt64 {
		return nil, nil, fmt.Errorf("%w: simulated memory of %d bytes; give it %d or more", ErrOptions, bytes, pageBytes)
	}
	bytes &^= pageBytes - 1
	mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: simulated memory of %d bytes: %w", ErrOptions, bytes, err)
	}
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	var notes []string
	if err := unix.Mlock(mem); err != nil {
		notes = append(notes, fmt.Sprintf("the simulated memory is not locked: %v; raise the limit of locked memory", err))
		if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil {
			notes = append(notes, fmt.Sprintf("the simulated memory is not pre-faulted: %v", err))
		}
	}
	return &simulated{mem: mem, free: []extent{{0, bytes}}}, notes, nil
}

func (s *simulated) Name() string          { return string(Simulated) }
func (s *simulated) UUID() string          { return "" }
func (s *simulated) CapacityBytes() uint64 { return uint64(len(s.mem)) }
func (s *simulated) Close() error          { return unix.Munmap(s.mem) }

// Copies gives each core a part: it copies more slowly than memory can.
func (s *simulated) Copies() (bytes, atOnce int) { return 16 << 20, 8 }

func (s *simulated) UsedBytes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *simulated) Allocate(bytes uint64) (Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &simulatedMemory{device: s, bytes: bytes}
	if bytes > uint64(len(s.mem))-s.used {
		return nil, fmt.Errorf("%w: %d bytes are wanted, and %d of %d are in use", ErrFull, bytes, s.used, len(s.mem))
	}
	need := (bytes + pageBytes - 1) &^ (pageBytes - 1)
	s.used += need
	for need > 0 {
		e := &s.free[0]
		n := min(need, e.bytes)
		m.extents = append(m.extents, extent{e.at, n})
		e.at, e.bytes, need = e.at+n, e.bytes-n, need-n
		if e.bytes == 0 {
			s.free = s.free[1:]
		}
	}
	return m, nil
}

// Pin locks host memory. The lock goes with the mapping.
func (s *simulated) Pin(host []byte) (func(), error) {
	if err := unix.Mlock(host); err != nil {
		return nil, fmt.Errorf("lock host memory: %w", err)
	}
	return func() {}, nil
}

type simulatedMemory struct {
	device  *simulated
	bytes   uint64
	extents []extent
}

// each calls f for the runs of device memory that n bytes at an offset lie in.
func (m *simulatedMemory) each(at uint64, n int, f func(mem []byte)) error {
	if err := inside(at, n, m.bytes); err != nil {
		return err
	}
	left := uint64(n)
	for _, e := range m.extents {
		if at >= e.bytes {
			at -= e.bytes
			continue
		}
		part := min(left, e.bytes-at)
		f(m.device.mem[e.at+at:][:part])
		at, left = 0, left-part
		if left == 0 {
			break
		}
	}
	return nil
}

func (m *simulatedMemory) CopyIn(at uint64, host []byte) error {
	return m.each(at, len(host), func(mem []byte) { host = host[copy(mem, host):] })
}

func (m *simulatedMemory) CopyOut(host []byte, at uint64) error {
	return m.each(at, len(host), func(mem []byte) { host = host[copy(host, mem):] })
}

func (m *simulatedMemory) Handle() ([]byte, error) {
	return nil, fmt.Errorf("%w: it is simulated", ErrNoHandle)
}

func (m *simulatedMemory) Free() error {
	s := m.device
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range m.extents {
		s.used -= e.bytes
	}
	all := slices.Concat(s.free, m.extents)
	m.extents, m.bytes = nil, 0
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.at, b.at) })
	s.free = nil
	for _, e := range all {
		if last := len(s.free) - 1; last >= 0 && s.free[last].at+s.free[last].bytes == e.at {
			s.free[last].bytes += e.bytes
			continue
		}
		s.free = append(s.free, e)
	}
	return nil
}
