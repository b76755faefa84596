package device

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is memory as the state manager has it: mapped.
func host(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func allocate(t testing.TB, d Device, n uint64) Memory {
	t.Helper()
	m, err := d.Allocate(n)
	must(t, err)
	return m
}

// exercise checks what every device promises. It has room for three allocations of 20,000 bytes and
// not much more; each takes a multiple of a granule.
func exercise(t *testing.T, d Device, granule uint64) {
	t.Helper()
	const size = 20_000
	from, to := host(t, size), host(t, size)
	fill(from, 1)
	var all []Memory
	for range 3 {
		all = append(all, allocate(t, d, size))
	}
	must(t, all[1].Free())
	m := allocate(t, d, size) // where another was, perhaps
	for _, at := range []uint64{0, 4096, 9999} {
		must(t, m.CopyIn(at, from[at:at+size/2]))
	}
	must(t, m.CopyOut(to[:4000], 0))
	must(t, m.CopyOut(to[4000:], 4000))
	if !bytes.Equal(from[:size-1], to[:size-1]) {
		t.Error("other bytes came back")
	}
	for _, at := range []uint64{1, size + 1, 1<<64 - 5} {
		if errors.Join(m.CopyIn(at, from)) == nil || m.CopyOut(to, at) == nil {
			t.Errorf("a copy at %d leaves the memory", at)
		}
	}
	if used := d.UsedBytes(); used < 3*size || used > 3*(size+granule) {
		t.Errorf("%d bytes in use", used)
	}
	if _, err := d.Allocate(d.CapacityBytes() - 2*size); !errors.Is(err, ErrFull) {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := d.Allocate(1<<64 - 1); !errors.Is(err, ErrFull) {
		t.Errorf("much more than there is: %v", err)
	}
	unpin, err := d.Pin(from)
	must(t, err)
	must(t, m.CopyIn(0, from))
	unpin()
	for _, m := range []Memory{all[0], all[2], m} {
		must(t, m.Free())
	}
	if used := d.UsedBytes(); used != 0 {
		t.Errorf("%d bytes in use of nothing", used)
	}
	must(t, allocate(t, d, d.CapacityBytes()&^(granule-1)).Free())
}

func TestSimulated(t *testing.T) {
	d, notes, err := Open(Spec{Kind: Simulated, Bytes: 1<<16 + 5})
	must(t, err)
	for _, note := range notes {
		t.Log(note)
	}
	if d.Name() != "simulated" || d.CapacityBytes() != 1<<16 {
		t.Errorf("%s of %d bytes", d.Name(), d.CapacityBytes())
	}
	exercise(t, d, pageBytes)
	m := allocate(t, d, 1)
	if _, err := m.Handle(); !errors.Is(err, ErrNoHandle) || !strings.Contains(err.Error(), "simulated") {
		t.Errorf("%v", err)
	}
	must(t, m.Free())
	must(t, d.Close())
}

// Memory in many pieces is used to the last page, and pieces do not mix.
func TestSimulatedMemoryInPieces(t *testing.T) {
	const pages = 64
	d, _, err := openSimulated(pages * pageBytes)
	must(t, err)
	defer d.Close()
	var all []Memory
	for range pages {
		all = append(all, allocate(t, d, pageBytes))
	}
	for i := 0; i < pages; i += 2 {
		must(t, all[i].Free())
	}
	scattered := allocate(t, d, pages/2*pageBytes)
	from, to := host(t, pages/2*pageBytes), host(t, pages/2*pageBytes)
	fill(from, 2)
	var wg sync.WaitGroup
	for at := 0; at < len(from); at += 10_000 {
		wg.Go(func() {
			part := from[at:min(at+10_000, len(from))]
			if err := scattered.CopyIn(uint64(at), part); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	zero := make([]byte, pageBytes)
	for i := 1; i < pages; i += 2 {
		must(t, all[i].CopyIn(0, zero))
	}
	must(t, scattered.CopyOut(to, 0))
	if !bytes.Equal(from, to) {
		t.Error("pieces are mixed")
	}
	must(t, scattered.Free())
	for i := 1; i < pages; i += 2 {
		must(t, all[i].Free())
	}
	if free := d.(*simulated).free; len(free) != 1 || free[0] != (extent{0, pages * pageBytes}) {
		t.Errorf("free: %+v", free)
	}
}

func TestDevicesThatCannotBeOpened(t *testing.T) {
	for _, s := range []Spec{{Kind: Simulated}, {Kind: Simulated, Bytes: 1 << 63}, {Kind: "gpu"}, {Kind: CUDA}} {
		if d, _, err := Open(s); !errors.Is(err, ErrOptions) {
			if d != nil {
				_ = d.Close() // this machine has a GPU, and the test was built with CUDA
				continue
			}
			t.Errorf("%+v: %v", s, err)
		}
	}
	if d, _, err := Open(Spec{}); d != nil || err != nil {
		t.Errorf("none: %v, %v", d, err)
	}
}
