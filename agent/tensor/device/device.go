package device

import (
	"errors"
	"fmt"
)

// The facts that callers are told apart by. Messages say more.
var (
	// ErrFull means that the device has no room.
	ErrFull = errors.New("the memory of the device is full")
	// ErrFailed means that the device or its driver has failed.
	ErrFailed = errors.New("the device has failed")
	// ErrNoHandle means that the memory cannot be passed to other processes.
	ErrNoHandle = errors.New("the memory of this device cannot be passed to other processes")
	// ErrOptions means that a device cannot be opened as asked.
	ErrOptions = errors.New("invalid options of the device")
)

// HandleBytes is the size of the handle by which another process opens memory of a device.
const HandleBytes = 64

// Device is memory. All methods may be called at once.
type Device interface {
	// Name says what it is, such as "simulated" or "cuda:0".
	Name() string
	// UUID is the name of the GPU, such as "GPU-1b2c...", as NVML and CUDA_VISIBLE_DEVICES know it;
	// empty if it is none.
	UUID() string
	// CapacityBytes is how much may be allocated.
	CapacityBytes() uint64
	// UsedBytes is how much is allocated. On a GPU each allocation takes a multiple of 2 MiB.
	UsedBytes() uint64
	// Allocate reserves bytes, of which nothing is known. It fails with ErrFull or ErrFailed.
	Allocate(bytes uint64) (Memory, error)
	// Copies says which parts of memory are copied fastest, in bytes, and how many at once.
	Copies() (bytes, atOnce int)
	// Pin keeps host memory in place, so that copies need no staging. The memory is mapped
	// until unpin has been called.
	Pin(host []byte) (unpin func(), err error)
	// Close gives the device up. All memory is to be freed before.
	Close() error
}

// Memory is a part of a device. Copies may run at once, also of the same part.
type Memory interface {
	// CopyIn copies from host memory to the device, at an offset in bytes. It fails with
	// ErrFailed.
	CopyIn(at uint64, host []byte) error
	// CopyOut copies to host memory. It fails with ErrFailed.
	CopyOut(host []byte, at uint64) error
	// Handle returns HandleBytes bytes by which another process opens the memory. It fails
	// with ErrNoHandle or ErrFailed.
	Handle() ([]byte, error)
	// Free gives the memory up. It fails with ErrFailed.
	Free() error
}

// Kind is what a device is.
type Kind string

// The kinds of devices.
const (
	None      Kind = ""
	Simulated Kind = "simulated"
	CUDA      Kind = "cuda"
)

// Spec says which device to open.
type Spec struct {
	Kind Kind
	// Index is the number of the GPU, as the CUDA driver counts.
	Index int
	// Bytes bounds what may be allocated; 0: all that the GPU has.
	Bytes uint64
}

// HostBytes is how much memory of the host the device takes.
func (s Spec) HostBytes() uint64 {
	if s.Kind == Simulated {
		return s.Bytes
	}
	return 0
}

// Open opens a device; nil for None. notes are what its user should know, such as that
// memory could not be locked. It fails with ErrOptions or ErrFailed.
func Open(s Spec) (d Device, notes []string, err error) {
	switch s.Kind {
	case None:
		return nil, nil, nil
	case Simulated:
		return openSimulated(s.Bytes)
	case CUDA:
		d, err = openCUDA(cudaLibrary, s)
		return d, nil, err
	}
	return nil, nil, fmt.Errorf("%w: there is no kind %q; use simulated or cuda", ErrOptions, s.Kind)
}

// inside checks a copy against the size of the memory.
func inside(at uint64, n int, size uint64) error {
	if at > size || uint64(n) > size-at {
		return fmt.Errorf("%w: %d bytes at %d are outside of memory of %d bytes", ErrFailed, n, at, size)
	}
	return nil
}
