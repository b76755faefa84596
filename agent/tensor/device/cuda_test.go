//go:build cuda

package device

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"rota/internal/need"
)

// standIn is the library that stands for the driver of GPUs.
type standIn struct {
	path       string
	fail       func(name string, r result)
	pins       func() int32
	used       func() uint64
	unfinished func() int32
	retained   func(i int32) int32
}

func buildStandIn(t testing.TB) *standIn {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("this machine has no C compiler")
	}
	s := &standIn{path: filepath.Join(t.TempDir(), "libsimulated_cuda.so")}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", s.path, "testdata/simulated_cuda.c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	library, err := purego.Dlopen(s.path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	must(t, err)
	purego.RegisterLibFunc(&s.fail, library, "simulated_cuda_fail")
	purego.RegisterLibFunc(&s.pins, library, "simulated_cuda_pins")
	purego.RegisterLibFunc(&s.used, library, "simulated_cuda_used")
	purego.RegisterLibFunc(&s.unfinished, library, "simulated_cuda_unfinished")
	purego.RegisterLibFunc(&s.retained, library, "simulated_cuda_retained")
	t.Cleanup(func() { _ = purego.Dlclose(library) })
	return s
}

func TestCUDAOnAStandIn(t *testing.T) {
	s := buildStandIn(t)
	d, err := openCUDA(s.path, Spec{Kind: CUDA, Index: 1, Bytes: 4*cudaGranule + 5})
	must(t, err)
	if d.Name() != "cuda:1" || d.UUID() != "GPU-00010203-0405-0607-0809-0a0b0c0d0e01" || s.retained(1) != 1 || s.retained(0) != 0 {
		t.Errorf("%s, %s", d.Name(), d.UUID())
	}
	exercise(t, d, cudaGranule)
	if s.pins() != 0 || s.used() != 0 {
		t.Errorf("%d pins and %d bytes are left", s.pins(), s.used())
	}
	a, b := allocate(t, d, 10), allocate(t, d, 10)
	one, err := a.Handle()
	must(t, err)
	other, err := b.Handle()
	must(t, err)
	if len(one) != HandleBytes || string(one) == string(other) {
		t.Errorf("%q and %q", one, other)
	}
	must(t, errors.Join(a.Free(), b.Free()))
	if err := a.Free(); !errors.Is(err, ErrFailed) || d.UsedBytes() != 0 {
		t.Errorf("freed twice: %v, %d bytes in use", err, d.UsedBytes())
	}
	must(t, d.Close())
	if s.retained(1) != 0 {
		t.Error("the context is still retained")
	}
}

// The context belongs to a thread, and goroutines change threads.
func TestCUDAFromManyThreads(t *testing.T) {
	s := buildStandIn(t)
	d, err := openCUDA(s.path, Spec{Kind: CUDA})
	must(t, err)
	defer d.Close()
	if d.CapacityBytes() != 64<<20 {
		t.Errorf("capacity %d", d.CapacityBytes())
	}
	var wg sync.WaitGroup
	for i := range 16 {
		from, to := host(t, 8192), host(t, 8192)
		wg.Go(func() {
			fill(from, uint64(i))
			for range 20 {
				m, err := d.Allocate(8192)
				if err == nil {
					err = errors.Join(m.CopyIn(0, from), m.CopyOut(to, 0), m.Free())
				}
				if err != nil || string(from) != string(to) {
					t.Errorf("goroutine %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A copy is there when it is told to be: a worker that opens it by a handle waits for nothing.
func TestCUDACopiesAreFinished(t *testing.T) {
	s := buildStandIn(t)
	d, err := openCUDA(s.path, Spec{Kind: CUDA})
	must(t, err)
	defer d.Close()
	m := allocate(t, d, 4096)
	must(t, m.CopyIn(0, host(t, 4096)))
	if n := s.unfinished(); n != 0 {
		t.Errorf("%d copies are on their way", n)
	}
	must(t, m.Free())
}

// A handle passes a block of the driver to another process, so allocations share none.
func TestCUDAAllocationsShareNoBlock(t *testing.T) {
	s := buildStandIn(t)
	d, err := openCUDA(s.path, Spec{Kind: CUDA, Bytes: 3 * cudaGranule})
	must(t, err)
	defer d.Close()
	a, b := allocate(t, d, 5), allocate(t, d, cudaGranule+1)
	if s.used() != 3*cudaGranule || d.UsedBytes() != 3*cudaGranule {
		t.Errorf("%d bytes are allocated, %d in use", s.used(), d.UsedBytes())
	}
	if _, err := d.Allocate(0); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth block: %v", err)
	}
	must(t, errors.Join(a.Free(), b.Free()))
}

// What workers have committed is mapped for reading only.
func TestCUDAPinsMemoryThatIsReadOnly(t *testing.T) {
	s := buildStandIn(t)
	d, err := openCUDA(s.path, Spec{Kind: CUDA})
	must(t, err)
	defer d.Close()
	mem := host(t, 4096)
	must(t, unix.Mprotect(mem, unix.PROT_READ))
	unpin, err := d.Pin(mem)
	must(t, err)
	if s.pins() != 1 {
		t.Errorf("%d pins", s.pins())
	}
	if _, err := d.Pin(mem); !errors.Is(err, ErrFailed) {
		t.Errorf("pinned twice: %v", err)
	}
	unpin()
	if s.pins() != 0 {
		t.Errorf("%d pins are left", s.pins())
	}
}

// TestCUDAHandlesInPython runs the tests of the Python client that open handles.
func TestCUDAHandlesInPython(t *testing.T) {
	need.Tool(t, "python3")
	cmd := exec.Command("python3", "-m", "unittest", "-v", "tests.test_gpu")
	cmd.Dir, cmd.Env = "../../../api/python", append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "ROTA_TEST_CUDA="+buildStandIn(t).path)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "skipped") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCUDAThatFails(t *testing.T) {
	s := buildStandIn(t)
	for _, name := range []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem_v2", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxRetain"} {
		s.fail(name, 999)
		if _, err := openCUDA(s.path, Spec{Kind: CUDA}); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "cuda:0") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.fail("", 0)
	for _, spec := range []Spec{{Kind: CUDA, Index: 2}, {Kind: CUDA, Index: -1}, {Kind: CUDA, Bytes: 65 << 20}} {
		if _, err := openCUDA(s.path, spec); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	if _, err := openCUDA(filepath.Join(t.TempDir(), "none.so"), Spec{Kind: CUDA}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "driver") {
		t.Errorf("no library: %v", err)
	}
	d, err := openCUDA(s.path, Spec{Kind: CUDA})
	must(t, err)
	defer d.Close()
	m, mem := allocate(t, d, 4096), host(t, 4096)
	for name, use := range map[string]func() error{
		"cuCtxSetCurrent":      func() error { return m.CopyIn(0, mem) },
		"cuMemcpyHtoD_v2":      func() error { return m.CopyIn(0, mem) },
		"cuCtxSynchronize":     func() error { return m.CopyIn(0, mem) },
		"cuMemcpyDtoH_v2":      func() error { return m.CopyOut(mem, 0) },
		"cuMemFree_v2":         m.Free,
		"cuMemHostRegister_v2": func() error { _, err := d.Pin(mem); return err },
		"cuIpcGetMemHandle":    func() error { _, err := m.Handle(); return err },
		"cuMemAlloc_v2":        func() error { _, err := d.Allocate(1); return err },
	} {
		s.fail(name, 1)
		if err := use(); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "SIMULATED_INVALID_VALUE (1)") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.fail("cuMemAlloc_v2", 2) // another process has the memory
	if _, err := d.Allocate(1); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	s.fail("", 0)
	if d.UsedBytes() != cudaGranule {
		t.Errorf("%d bytes in use", d.UsedBytes())
	}
	must(t, m.Free())
}
