//go:build cuda

package device

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/internal/need"
)

// openGPU opens the first GPU of the machine.
func openGPU(t testing.TB, bytes uint64) Device {
	t.Helper()
	need.GPU(t)
	d, notes, err := Open(Spec{Kind: CUDA, Bytes: bytes})
	must(t, err)
	if len(notes) > 0 {
		t.Log(notes)
	}
	return d
}

// memfd is shared memory as the state manager has it; readOnly: as after a worker's commit.
func memfd(t testing.TB, n int, readOnly, huge bool) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("rota-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Ftruncate(fd, int64(n)))
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	if huge {
		must(t, unix.Madvise(mem, unix.MADV_HUGEPAGE))
	}
	must(t, unix.Madvise(mem, unix.MADV_POPULATE_WRITE))
	if readOnly {
		fillFast(mem)
		must(t, unix.Munmap(mem))
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
		must(t, err)
		mem, err = unix.Mmap(fd, 0, n, unix.PROT_READ, unix.MAP_SHARED)
		must(t, err)
		must(t, unix.Madvise(mem, unix.MADV_POPULATE_READ))
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// fillFast gives each page bytes of its own.
func fillFast(mem []byte) {
	for at := 0; at < len(mem); at += 4096 {
		copy(mem[at:], fmt.Sprintf("page %d", at/4096))
	}
}

func TestGPU(t *testing.T) {
	d := openGPU(t, 4*cudaGranule+5)
	if out, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu=uuid", "--format=csv,noheader").Output(); err != nil || strings.TrimSpace(string(out)) != d.UUID() {
		t.Errorf("the driver's UUID is %s, that of nvidia-smi %s: %v", d.UUID(), out, err)
	}
	exercise(t, d, cudaGranule)
	a, b := allocate(t, d, 5), allocate(t, d, 5)
	one, err := a.Handle()
	must(t, err)
	other, err := b.Handle()
	must(t, err)
	if bytes.Equal(one, other) {
		t.Error("two allocations have the same handle")
	}
	must(t, a.Free())
	if err := a.Free(); err == nil {
		t.Error("memory was freed twice")
	}
	must(t, b.Free())
	must(t, d.Close())
}

// The driver's library is opened and closed again, and goroutines change threads meanwhile.
func TestGPUOpenedAgainAndFromManyThreads(t *testing.T) {
	for range 3 {
		d := openGPU(t, 64<<20)
		var wg sync.WaitGroup
		for i := range 16 {
			from, to := host(t, 8192), host(t, 8192)
			wg.Go(func() {
				fill(from, uint64(i))
				for range 20 {
					m, err := d.Allocate(8192)
					if err == nil {
						if err = m.CopyIn(0, from); err == nil {
							err = m.CopyOut(to, 0)
						}
						err = first(err, m.Free())
					}
					if err != nil || !bytes.Equal(from, to) {
						t.Errorf("goroutine %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		must(t, d.Close())
	}
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// More than the GPU has is refused, whatever the limit says.
func TestGPUThatIsFull(t *testing.T) {
	d := openGPU(t, 0)
	defer d.Close()
	if _, err := d.Allocate(d.CapacityBytes()); err == nil {
		t.Error("all of the memory was allocated, with the driver's own part")
	}
	if d.UsedBytes() != 0 {
		t.Errorf("%d bytes are in use", d.UsedBytes())
	}
}

// Memory of a memfd is pinned, writable or sealed, and its bytes come back.
func TestGPUPinsMemfds(t *testing.T) {
	d := openGPU(t, 1<<30)
	defer d.Close()
	const size = 64<<20 + 4096
	for _, readOnly := range []bool{false, true} {
		mem := memfd(t, size, readOnly, false)
		if !readOnly {
			fillFast(mem)
		}
		from := time.Now()
		unpin, err := d.Pin(mem)
		t.Logf("read-only %v: pinned in %v: %v", readOnly, time.Since(from), err)
		if err != nil && !readOnly {
			t.Fatal(err)
		}
		m, back := allocate(t, d, size), host(t, size)
		must(t, m.CopyIn(0, mem))
		must(t, m.CopyOut(back, 0))
		if !bytes.Equal(mem, back) {
			t.Error("other bytes came back")
		}
		if err == nil {
			unpin()
		}
		must(t, m.Free())
	}
}

// BenchmarkGPU copies one GiB in ways that the state manager could choose from.
func BenchmarkGPU(b *testing.B) {
	d := openGPU(b, 4<<30)
	defer d.Close()
	const size = 1 << 30
	m := allocate(b, d, size)
	for _, pinned := range []bool{true, false} {
		mem := memfd(b, size, false, false)
		name := "pageable"
		if pinned {
			unpin, err := d.Pin(mem)
			must(b, err)
			defer unpin()
			name = "pinned"
		}
		for _, way := range []struct{ part, workers int }{{size, 1}, {256 << 20, 1}, {16 << 20, 1}, {16 << 20, 8}, {4 << 20, 8}} {
			name := fmt.Sprintf("%s/%dMiB-by-%d", name, way.part>>20, way.workers)
			b.Run("in/"+name, func(b *testing.B) { benchParts(b, mem, way.part, way.workers, m.CopyIn) })
			out := func(at uint64, part []byte) error { return m.CopyOut(part, at) }
			b.Run("out/"+name, func(b *testing.B) { benchParts(b, mem, way.part, way.workers, out) })
		}
	}
	must(b, m.Free())
}

// BenchmarkGPUPin pins one GiB of new memory that is sealed, of small and of huge pages.
func BenchmarkGPUPin(b *testing.B) {
	d := openGPU(b, 4<<30)
	defer d.Close()
	const size = 1 << 30
	for _, huge := range []bool{false, true} {
		for _, way := range []struct{ part, workers int }{{size, 1}, {128 << 20, 8}} {
			b.Run(fmt.Sprintf("huge-%v/%dMiB-by-%d", huge, way.part>>20, way.workers), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					mem := memfd(b, size, true, huge)
					unpins := make(chan func(), size/way.part)
					b.StartTimer()
					inParts(b, mem, way.part, way.workers, func(_ uint64, part []byte) error {
						unpin, err := d.Pin(part)
						unpins <- unpin
						return err
					})
					b.StopTimer()
					for range size / way.part {
						(<-unpins)()
					}
					must(b, unix.Munmap(mem))
					b.StartTimer()
				}
			})
		}
	}
}

// inParts calls f for all parts of memory, on some goroutines.
func inParts(b *testing.B, mem []byte, size, workers int, f func(at uint64, part []byte) error) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for at := w * size; at < len(mem); at += workers * size {
				if err := f(uint64(at), mem[at:min(at+size, len(mem))]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func benchParts(b *testing.B, mem []byte, size, workers int, f func(at uint64, part []byte) error) {
	b.SetBytes(int64(len(mem)))
	for b.Loop() {
		inParts(b, mem, size, workers, f)
	}
}
