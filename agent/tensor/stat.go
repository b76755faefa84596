package tensor

import "slices"

// Info says what a state is and where.
type Info struct {
	Key
	Bytes    uint64   `json:"bytes"` // of its tensors
	Tensors  int      `json:"tensors"`
	InMemory bool     `json:"in_memory"`
	OnDisk   bool     `json:"on_disk"`
	OnDevice bool     `json:"on_device"`
	Damaged  string   `json:"damaged,omitempty"` // why it can only be dropped
	Details  []Tensor `json:"details,omitempty"` // only of one state
}

// Stat says how a store is.
type Stat struct {
	States int `json:"states"`
	// LogicalBytes are those of the tensors of all states.
	LogicalBytes uint64 `json:"logical_bytes"`
	// MemoryBytes are those of the memfds, which equal groups share.
	MemoryBytes    uint64 `json:"memory_bytes"`
	MemoryBytesMax uint64 `json:"memory_bytes_max"`
	// ReadyBytes are those of memory that nothing is in and the agent fills next. It goes when
	// the limit needs it for others.
	ReadyBytes uint64 `json:"ready_bytes"`
	// Device is the name of the device; empty for none. "simulated" is memory of the agent.
	Device         string `json:"device,omitempty"`
	DeviceBytes    uint64 `json:"device_bytes"`
	DeviceBytesMax uint64 `json:"device_bytes_max"`
	// DiskBytes are those of the blocks, of which equal ones are stored once.
	DiskBytes    uint64 `json:"disk_bytes"`
	DiskBytesMax uint64 `json:"disk_bytes_max"` // 0: no disk
	Blocks       int    `json:"blocks"`
	// SpareBytes are those of files that the next blocks are written over. They go when the
	// limit needs them for others.
	SpareBytes uint64 `json:"spare_bytes"`
	DirectIO   bool   `json:"direct_io"`
	// Remote is where checkpoints in an object store may be; empty for none.
	Remote string `json:"remote,omitempty"`
	// WrittenBytes went to disk and checkpoints since the start, UnchangedBytes were there.
	WrittenBytes   uint64 `json:"written_bytes"`
	UnchangedBytes uint64 `json:"unchanged_bytes"`
	// Corrupt counts operations and manifests that met bytes unlike their hash.
	Corrupt uint64 `json:"corrupt"`
}

// Stat returns the state and the counts since Open.
func (s *Store) Stat() Stat {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stat{
		States: len(s.states), MemoryBytes: s.memory, MemoryBytesMax: s.options.MemoryBytes, ReadyBytes: s.ready.bytes,
		DiskBytes: s.disk, DiskBytesMax: s.options.DiskBytes, Blocks: len(s.blocks), DirectIO: s.folder != nil && s.folder.direct != 0, Remote: s.options.Remote,
		WrittenBytes: s.counts.written.Load(), UnchangedBytes: s.counts.reused.Load(), Corrupt: s.counts.corrupt.Load(),
	}
	if s.device != nil {
		st.Device, st.DeviceBytes, st.DeviceBytesMax = s.device.Name(), s.device.UsedBytes(), s.device.CapacityBytes()
	}
	if s.folder != nil {
		st.SpareBytes = s.folder.spares.bytes()
	}
	for _, t := range s.states {
		st.LogicalBytes += t.bytes()
	}
	return st
}

func (s *Store) info(st *state) Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return infoOf(st)
}

func infoOf(st *state) Info {
	i := Info{
		Key: st.key, Bytes: st.bytes(), Tensors: len(st.tensors),
		InMemory: st.segments != nil, OnDisk: st.blocks != nil || st.damaged != nil,
		OnDevice: st.copies != nil,
	}
	if st.damaged != nil {
		i.Damaged = st.damaged.Error()
	}
	return i
}

// List returns the states of a deployment, or of all, by key.
func (s *Store) List(deployment string) []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := []Info{}
	for k, st := range s.states {
		if deployment == "" || k.Deployment == deployment {
			infos = append(infos, infoOf(st))
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return compareKeys(a.Key, b.Key) })
	return infos
}

// Info returns one state with its tensors. It fails with ErrNotFound or ErrCorrupt.
func (s *Store) Info(k Key) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.find(k)
	if err != nil {
		return Info{}, err
	}
	i := infoOf(st)
	for _, t := range st.tensors {
		i.Details = append(i.Details, t.Tensor)
	}
	return i, nil
}
