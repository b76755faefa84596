package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"rota/agent/internal/directio"
)

// The facts that clients are told apart by. Messages say more.
var (
	// ErrInvalid means that a request makes no sense.
	ErrInvalid = errors.New("invalid request")
	// ErrExists means that the key has a state already.
	ErrExists = errors.New("the state exists")
	// ErrNotFound means that there is no such state, tensor or checkpoint.
	ErrNotFound = errors.New("not found")
	// ErrMemory means that the state memory has no room.
	ErrMemory = errors.New("the state memory is full")
	// ErrDisk means that the state disk has no room, by its limit or by its file system.
	ErrDisk = errors.New("the state disk is full")
	// ErrNoDisk means that the agent has no state disk.
	ErrNoDisk = errors.New("the agent has no state disk; start it with --state-disk")
	// ErrNoRemote means that the agent has no object store for checkpoints.
	ErrNoRemote = errors.New("the agent has no object store for checkpoints; start it with --state-remote")
	// ErrRemote means that the object store does not answer, or refuses.
	ErrRemote = errors.New("the object store failed; try again when it answers")
	// ErrDevice means that the device has no room.
	ErrDevice = errors.New("the state device is full")
	// ErrNoDevice means that the agent has no device.
	ErrNoDevice = errors.New("the agent has no state device; start it with --state-device")
	// ErrDeviceFailed means that the device or its driver has failed.
	ErrDeviceFailed = errors.New("the state device has failed")
	// ErrOnDevice means that the state is on the device only.
	ErrOnDevice = errors.New("the state is on the device only; copy it to the host first")
	// ErrNoHandle means that memory of the device cannot be passed to workers.
	ErrNoHandle = errors.New("memory of the state device cannot be passed to workers")
	// ErrOffloaded means that the state is on disk only.
	ErrOffloaded = errors.New("the state is on disk only; restore it first")
	// ErrMapped means that a worker still has a writable mapping.
	ErrMapped = errors.New("memory of the state is still mapped for writing; unmap it and commit again")
	// ErrCorrupt means that bytes do not match their hash.
	ErrCorrupt = errors.New("bytes do not match their hash")
	// ErrHole means that no shard has a part of the slice.
	ErrHole = errors.New("no shard has a part of the slice")
	// ErrOptions means that a store cannot be opened as asked.
	ErrOptions = errors.New("invalid options of the state manager")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("the state manager is closed")
)

const (
	// BlockBytes is the size of a block; the last one of a tensor may be smaller.
	BlockBytes = 4 << 20
	// TensorsMax is the most tensors of a state.
	TensorsMax = 1 << 16
	// GroupsMax is the most groups of a state; each is a memfd, and the kernel passes at most
	// 253 descriptors at once.
	GroupsMax = 64
	// TensorBytesMax is the largest tensor in bytes.
	TensorBytesMax = 1 << 40
	dimensionsMax  = 16
	nameBytesMax   = 512
)

// Key names a state.
type Key struct {
	Deployment string `json:"deployment"`
	Version    uint64 `json:"version"` // of the policy
	Rank       uint32 `json:"rank"`
}

// String is DEPLOYMENT/VERSION/RANK.
func (k Key) String() string { return fmt.Sprintf("%s/%d/%d", k.Deployment, k.Version, k.Rank) }

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Rank, b.Rank))
}

var deploymentRE = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

const deploymentBytesMax = 128

func (k Key) check() error {
	if len(k.Deployment) > deploymentBytesMax || !deploymentRE.MatchString(k.Deployment) {
		return fmt.Errorf("%w: deployment %q is not 1 to 128 of A-Z, a-z, 0-9, '.', '_', '-'", ErrInvalid, k.Deployment)
	}
	return nil
}

// ParseKey reads DEPLOYMENT/VERSION/RANK. It fails with ErrInvalid.
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 3 {
		version, err := strconv.ParseUint(parts[1], 10, 64)
		rank, err2 := strconv.ParseUint(parts[2], 10, 32)
		k := Key{parts[0], version, uint32(rank)}
		if err == nil && err2 == nil && k.check() == nil {
			return k, nil
		}
	}
	return Key{}, fmt.Errorf("%w: %q is not DEPLOYMENT/VERSION/RANK, such as actor/3/0", ErrInvalid, s)
}

// Tensor describes a tensor, or the shard of one that a rank has.
type Tensor struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"` // one of dtypes
	Shape []uint64 `json:"shape"` // empty: a scalar
	// Global is the shape of the whole tensor, and Offset where the shard begins in it;
	// both absent: the tensor is whole.
	Global []uint64 `json:"global,omitempty"`
	Offset []uint64 `json:"offset,omitempty"`
	// Group says which tensors share a memfd.
	Group string `json:"group,omitempty"`
}

// dtypes are the element types and their sizes in bytes.
var dtypes = map[string]uint64{
	"bool": 1, "int8": 1, "uint8": 1, "float8_e4m3": 1, "float8_e5m2": 1,
	"int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
	"int32": 4, "uint32": 4, "float32": 4,
	"int64": 8, "uint64": 8, "float64": 8,
}

// bytes is the size of the shard; check has passed.
func (t Tensor) bytes() uint64 {
	n, _ := product(t.Shape, dtypes[t.DType])
	return n
}

// product multiplies, and fails beyond TensorBytesMax.
func product(shape []uint64, n uint64) (uint64, bool) {
	for _, d := range shape {
		hi, lo := bits.Mul64(n, d)
		if hi > 0 || lo > TensorBytesMax {
			return 0, false
		}
		n = lo
	}
	return n, true
}

// box is where the shard is in the whole tensor.
func (t Tensor) box() box {
	if t.Global == nil {
		return box{make([]uint64, len(t.Shape)), t.Shape}
	}
	return box{t.Offset, t.Shape}
}

func (t Tensor) global() []uint64 {
	if t.Global == nil {
		return t.Shape
	}
	return t.Global
}

func (t Tensor) check() error {
	if t.Name == "" || len(t.Name) > nameBytesMax || len(t.Group) > nameBytesMax {
		return fmt.Errorf("%w: tensor %.40q: name and group have at most %d bytes, and the name at least one", ErrInvalid, t.Name, nameBytesMax)
	}
	if dtypes[t.DType] == 0 {
		return fmt.Errorf("%w: tensor %s: dtype %q is not known; use one such as float32 or bfloat16", ErrInvalid, t.Name, t.DType)
	}
	if len(t.Shape) > dimensionsMax {
		return fmt.Errorf("%w: tensor %s has %d dimensions, at most %d are allowed", ErrInvalid, t.Name, len(t.Shape), dimensionsMax)
	}
	if _, ok := product(t.Shape, dtypes[t.DType]); !ok {
		return fmt.Errorf("%w: tensor %s has more than %d bytes", ErrInvalid, t.Name, uint64(TensorBytesMax))
	}
	if t.Global == nil && t.Offset == nil {
		return nil
	}
	if len(t.Global) != len(t.Shape) || len(t.Offset) != len(t.Shape) {
		return fmt.Errorf("%w: tensor %s: shape, global and offset need as many dimensions each", ErrInvalid, t.Name)
	}
	for i, g := range t.Global {
		if g > math.MaxInt64 || t.Shape[i] > g || t.Offset[i] > g-t.Shape[i] {
			return fmt.Errorf("%w: tensor %s: the shard ends outside of the whole tensor in dimension %d", ErrInvalid, t.Name, i)
		}
	}
	return nil
}

// place is where a tensor is: in which memfd of its state, and from which byte on.
type place struct {
	group int
	at    uint64 // a multiple of a page, for direct I/O
}

// layout gives each tensor its place. groups are the names of the memfds in the order in
// which tensors name them, sizes their bytes. It fails with ErrInvalid.
func layout(tensors []Tensor) (places []place, groups []string, sizes []uint64, err error) {
	if len(tensors) == 0 || len(tensors) > TensorsMax {
		return nil, nil, nil, fmt.Errorf("%w: a state has 1 to %d tensors, not %d", ErrInvalid, TensorsMax, len(tensors))
	}
	index, names := map[string]int{}, map[string]bool{}
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return nil, nil, nil, err
		}
		if names[t.Name] {
			return nil, nil, nil, fmt.Errorf("%w: two tensors are called %s", ErrInvalid, t.Name)
		}
		names[t.Name] = true
		i, there := index[t.Group]
		if !there {
			i = len(groups)
			index[t.Group] = i
			groups, sizes = append(groups, t.Group), append(sizes, 0)
		}
		places = append(places, place{i, sizes[i]})
		sizes[i] += directio.Padded(t.bytes())
		if sizes[i] > math.MaxInt64/2 {
			return nil, nil, nil, fmt.Errorf("%w: the tensors of group %q are too large together", ErrInvalid, t.Group)
		}
	}
	if len(groups) > GroupsMax {
		return nil, nil, nil, fmt.Errorf("%w: a state has at most %d groups, not %d", ErrInvalid, GroupsMax, len(groups))
	}
	return places, groups, sizes, nil
}
