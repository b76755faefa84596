//go:build cuda

package tensor

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ebitengine/purego"

	"rota/agent/tensor/device"
)

// simulatedCUDA opens a GPU of a library that stands for the driver. It has the name by which
// the driver is loaded, and is there before.
func simulatedCUDA(t *testing.T) (d device.Device, pins func() int32) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("this machine has no C compiler")
	}
	path := filepath.Join(t.TempDir(), "libsimulated_cuda.so")
	source := filepath.Join("device", "testdata", "simulated_cuda.c")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", path, source, "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	must(t, err)
	t.Cleanup(func() { _ = purego.Dlclose(library) })
	purego.RegisterLibFunc(&pins, library, "simulated_cuda_pins")
	d, _, err = device.Open(device.Spec{Kind: device.CUDA, Bytes: 32 << 20})
	must(t, err)
	return d, pins
}

// A state goes through the functions of the driver, as the stand-in has them, and its memory
// is passed to a worker by a handle.
func TestStatesOnSimulatedCUDA(t *testing.T) {
	o := roomy(scratch(t))
	d, pins := simulatedCUDA(t)
	o.Device = d
	s := open(t, o)
	k := Key{"a", 1, 0}
	contents := []content{{"w", "w", text(1, BlockBytes+100)}, {"b", "b", text(2, 5)}}
	must(t, put(t, s, k, contents...))
	if n := pins(); n != 2 {
		t.Errorf("%d groups of 2 are pinned by the commit", n)
	}
	offload(t, s, k)
	until(t, "memory that was given up", func() bool { return pins() == 0 })
	must(t, s.Restore(k))
	if n := pins(); n != 2 {
		t.Errorf("%d groups of 2 are pinned by restore", n)
	}
	for range 3 {
		must(t, s.ToDevice(k, false))
		must(t, s.ToHost(k, false, true))
	}
	wantState(t, s, k, contents...)
	must(t, s.ToDevice(k, false))
	if st := s.Stat(); st.Device != "cuda:0" || st.DeviceBytes != 4*(2<<20) {
		t.Errorf("%+v", st)
	}
	if n, other := s.DeviceBytes(o.Device.UUID()), s.DeviceBytes(""); n != 4*(2<<20) || other != 0 {
		t.Errorf("%d bytes of the GPU and %d of another", n, other)
	}
	address, _ := serve(t, s)
	c := dial(t, address)
	a := c.must(t, request{Op: "open_device", Key: k})
	if a.GPU != o.Device.UUID() || len(a.Handles) != 2 || len(a.Handles[0]) != device.HandleBytes || len(a.Tensors) != 2 || a.Tensors[1].FD != 1 {
		t.Errorf("%+v", a)
	}
	_, _, err := c.call(request{Op: "open_device", Key: k})
	wantError(t, err, ErrExists)
	must(t, s.Drop(k))
	if n := s.Stat().DeviceBytes; n == 0 {
		t.Error("memory was freed that a worker may have opened")
	}
	c.must(t, request{Op: "close_device", Key: k})
	if n := s.Stat().DeviceBytes; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	_, _, err = c.call(request{Op: "close_device", Key: k})
	wantError(t, err, ErrNotFound)
	must(t, put(t, s, k, contents...)) // and a worker that dies
	must(t, s.ToDevice(k, false))
	c.must(t, request{Op: "open_device", Key: k})
	must(t, s.Drop(k))
	must(t, c.Close())
	until(t, "its memory", func() bool { return s.Stat().DeviceBytes == 0 })
}
