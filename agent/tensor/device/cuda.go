//go:build cuda

package device

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// cudaLibrary is what the driver of the GPU installs.
const cudaLibrary = "libcuda.so.1"

// result is a CUresult: 0 for success.
type result int32

const (
	cudaOutOfMemory result = 2
	// cudaReadOnly is CU_MEMHOSTREGISTER_READ_ONLY: the device will not write to the memory.
	cudaReadOnly uint32 = 8
	// cudaGranule is what allocations are multiples of. The driver cuts smaller ones out of blocks of
	// this size, and a handle passes the whole block to another process, with what others have in it.
	cudaGranule uint64 = 2 << 20
)

// cudaDriver are the functions of the driver that are used.
type cudaDriver struct {
	library uintptr

	init           func(flags uint32) result
	errorName      func(r result, name **byte) result
	deviceCount    func(count *int32) result
	deviceGet      func(device *int32, ordinal int32) result
	deviceTotalMem func(bytes *uint64, device int32) result
	contextRetain  func(context *uintptr, device int32) result
	contextRelease func(device int32) result
	contextSet     func(context uintptr) result
	synchronize    func() result
	uuid           func(uuid *[16]byte, device int32) result
	alloc          func(address *uint64, bytes uint64) result
	free           func(address uint64) result
	copyIn         func(to uint64, from unsafe.Pointer, bytes uint64) result
	copyOut        func(to unsafe.Pointer, from, bytes uint64) result
	register       func(host unsafe.Pointer, bytes uint64, flags uint32) result
	unregister     func(host unsafe.Pointer) result
	handle         func(handle *[HandleBytes]byte, address uint64) result
}

func loadCUDA(path string) (*cudaDriver, error) {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; is the driver of the GPU installed?", ErrOptions, err)
	}
	d := &cudaDriver{library: library}
	for name, function := range map[string]any{
		"cuInit": &d.init, "cuGetErrorName": &d.errorName, "cuDeviceGetCount": &d.deviceCount,
		"cuDeviceGet": &d.deviceGet, "cuDeviceTotalMem_v2": &d.deviceTotalMem,
		"cuDevicePrimaryCtxRetain": &d.contextRetain, "cuDevicePrimaryCtxRelease_v2": &d.contextRelease,
		"cuCtxSetCurrent": &d.contextSet, "cuCtxSynchronize": &d.synchronize, "cuDeviceGetUuid_v2": &d.uuid,
		"cuMemAlloc_v2": &d.alloc, "cuMemFree_v2": &d.free,
		"cuMemcpyHtoD_v2": &d.copyIn, "cuMemcpyDtoH_v2": &d.copyOut,
		"cuMemHostRegister_v2": &d.register, "cuMemHostUnregister": &d.unregister, "cuIpcGetMemHandle": &d.handle,
	} {
		symbol, err := purego.Dlsym(library, name)
		if err != nil {
			_ = purego.Dlclose(library)
			return nil, fmt.Errorf("%w: %s has no %s: %w; install a newer driver", ErrOptions, path, name, err)
		}
		purego.RegisterFunc(function, symbol)
	}
	return d, nil
}

// check makes an error of a result.
func (d *cudaDriver) check(what string, r result) error {
	if r == 0 {
		return nil
	}
	var name *byte
	text := "unknown"
	if d.errorName(r, &name) == 0 && name != nil {
		text = unsafe.String(name, cLength(name))
	}
	fact := ErrFailed
	if r == cudaOutOfMemory {
		fact = ErrFull
	}
	return fmt.Errorf("%w: %s: %s (%d)", fact, what, text, r)
}

func cLength(s *byte) (n int) {
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return n
}

// cuda is a GPU.
type cuda struct {
	driver   *cudaDriver
	index    int
	device   int32
	context  uintptr
	uuid     string
	capacity uint64
	used     atomic.Uint64
}

func openCUDA(path string, s Spec) (Device, error) {
	driver, err := loadCUDA(path)
	if err != nil {
		return nil, err
	}
	d := &cuda{driver: driver, index: s.Index}
	if err := d.open(s); err != nil {
		_ = purego.Dlclose(driver.library)
		return nil, fmt.Errorf("%s: %w", d.Name(), err)
	}
	return d, nil
}

func (d *cuda) open(s Spec) error {
	if err := d.driver.check("cuInit", d.driver.init(0)); err != nil {
		return err
	}
	var count int32
	if err := d.driver.check("cuDeviceGetCount", d.driver.deviceCount(&count)); err != nil {
		return err
	}
	if s.Index < 0 || s.Index >= int(count) {
		return fmt.Errorf("%w: the driver has %d GPUs, numbered from 0", ErrOptions, count)
	}
	if err := d.driver.check("cuDeviceGet", d.driver.deviceGet(&d.device, int32(s.Index))); err != nil {
		return err
	}
	var total uint64
	if err := d.driver.check("cuDeviceTotalMem", d.driver.deviceTotalMem(&total, d.device)); err != nil {
		return err
	}
	var uuid [16]byte
	if err := d.driver.check("cuDeviceGetUuid", d.driver.uuid(&uuid, d.device)); err != nil {
		return err
	}
	d.uuid = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:])
	if s.Bytes > total {
		return fmt.Errorf("%w: %d bytes are wanted, and the GPU has %d", ErrOptions, s.Bytes, total)
	}
	if d.capacity = s.Bytes; d.capacity == 0 {
		d.capacity = total
	}
	return d.driver.check("cuDevicePrimaryCtxRetain", d.driver.contextRetain(&d.context, d.device))
}

// call makes the context that of this thread, as every call of the driver needs it.
func (d *cuda) call(what string, f func() result) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.driver.check("cuCtxSetCurrent", d.driver.contextSet(d.context)); err != nil {
		return err
	}
	return d.driver.check(what, f())
}

func (d *cuda) Name() string          { return fmt.Sprintf("%s:%d", CUDA, d.index) }
func (d *cuda) CapacityBytes() uint64 { return d.capacity }
func (d *cuda) UsedBytes() uint64     { return d.used.Load() }
func (d *cuda) UUID() string          { return d.uuid }

// Copies has one copy follow the other: the link is full with one, and each has a price. They are
// not larger, so that a store that closes need not wait for long.
func (d *cuda) Copies() (bytes, atOnce int) { return 256 << 20, 1 }

func (d *cuda) Close() error {
	err := d.driver.check("cuDevicePrimaryCtxRelease", d.driver.contextRelease(d.device))
	return errors.Join(err, purego.Dlclose(d.driver.library))
}

func (d *cuda) Allocate(bytes uint64) (Memory, error) {
	takes := granules(bytes)
	if used := d.used.Add(takes); used > d.capacity || used < takes || takes < bytes {
		d.used.Add(-takes)
		return nil, fmt.Errorf("%w: %d bytes are wanted, and %d of %d are in use", ErrFull, bytes, d.UsedBytes(), d.capacity)
	}
	m := &cudaMemory{device: d, bytes: bytes}
	if err := d.call("cuMemAlloc", func() result { return d.driver.alloc(&m.address, takes) }); err != nil {
		d.used.Add(-takes)
		return nil, err
	}
	return m, nil
}

// granules is what an allocation of some bytes takes, at least one granule.
func granules(bytes uint64) uint64 {
	return (max(bytes, 1) + cudaGranule - 1) &^ (cudaGranule - 1)
}

// Pin registers host memory. Memory that the agent cannot write any more can only be
// registered as such, which not every GPU can do.
func (d *cuda) Pin(host []byte) (func(), error) {
	at, n := unsafe.Pointer(unsafe.SliceData(host)), uint64(len(host))
	err := d.call("cuMemHostRegister", func() result { return d.driver.register(at, n, 0) })
	if err != nil {
		err = d.call("cuMemHostRegister", func() result { return d.driver.register(at, n, cudaReadOnly) })
	}
	if err != nil {
		return nil, err
	}
	return func() {
		_ = d.call("cuMemHostUnregister", func() result { return d.driver.unregister(at) })
	}, nil
}

type cudaMemory struct {
	device  *cuda
	address uint64
	bytes   uint64
}

// CopyIn returns when the bytes are there. The copy from memory that is not pinned returns before:
// what opens a handle in another process would not wait for it.
func (m *cudaMemory) CopyIn(at uint64, host []byte) error {
	if err := inside(at, len(host), m.bytes); err != nil || len(host) == 0 {
		return err
	}
	err := m.device.call("cuMemcpyHtoD", func() result {
		return m.device.driver.copyIn(m.address+at, unsafe.Pointer(unsafe.SliceData(host)), uint64(len(host)))
	})
	if err != nil {
		return err
	}
	return m.device.call("cuCtxSynchronize", m.device.driver.synchronize)
}

func (m *cudaMemory) CopyOut(host []byte, at uint64) error {
	if err := inside(at, len(host), m.bytes); err != nil || len(host) == 0 {
		return err
	}
	return m.device.call("cuMemcpyDtoH", func() result {
		return m.device.driver.copyOut(unsafe.Pointer(unsafe.SliceData(host)), m.address+at, uint64(len(host)))
	})
}

func (m *cudaMemory) Handle() ([]byte, error) {
	var handle [HandleBytes]byte
	err := m.device.call("cuIpcGetMemHandle", func() result { return m.device.driver.handle(&handle, m.address) })
	return handle[:], err
}

func (m *cudaMemory) Free() error {
	err := m.device.call("cuMemFree", func() result { return m.device.driver.free(m.address) })
	if err == nil {
		m.device.used.Add(-granules(m.bytes))
		m.bytes = 0
	}
	return err
}
