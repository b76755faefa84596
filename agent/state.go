package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"rota/agent/tensor"
	"rota/agent/tensor/device"
)

// StateSocket is the name of the state manager's socket in the folder of the agent.
const StateSocket = "state.sock"

// State configures the state manager of the node, which holds weights and optimizers.
type State struct {
	// MemoryBytes bounds what it holds in memory; 0 for no state manager. The node offers
	// that much less.
	MemoryBytes uint64
	// Dir is a folder for states on disk, alone; empty for none. DiskBytes bounds it.
	Dir       string
	DiskBytes uint64
	// Remote is where checkpoints in an object store may be, s3://BUCKET/PREFIX; empty for none. The
	// environment of the agent has the credentials.
	Remote string
	// Listen is unix:/path; StateSocket in the folder of the agent if empty.
	Listen string
	// Device is memory of a GPU, or what stands for it, for states; none if zero. The node
	// offers less memory by what a simulated one takes.
	Device device.Spec
}

// hostBytes is how much memory of the node the state manager takes.
func (s State) hostBytes() uint64 { return s.MemoryBytes + s.Device.HostBytes() }

// withDefaults checks what can be checked before the machine is looked at.
func (s State) withDefaults(dir string) (State, error) {
	if s.Listen == "" {
		s.Listen = "unix:" + filepath.Join(dir, StateSocket)
	}
	if s.MemoryBytes == 0 && s.Device.Kind != device.None {
		return s, fmt.Errorf("%w: the state manager has a device but no memory; give it memory too", ErrConfig)
	}
	if s.MemoryBytes == 0 && s.Remote != "" {
		return s, fmt.Errorf("%w: the state manager has an object store but no memory; give it memory too", ErrConfig)
	}
	return s, checkStore("state manager", s.MemoryBytes, s.Dir, s.DiskBytes)
}

// states is the open state manager of the node.
type states struct {
	store    *tensor.Store
	listener *net.UnixListener
	server   *tensor.Server
}

// openStates opens the state manager and listens; nil if there is none.
func (a *agent) openStates() (_ *states, err error) {
	c := a.cfg.State
	if c.MemoryBytes == 0 {
		return nil, nil
	}
	s := &states{}
	if s.listener, err = tensor.Listen(c.Listen); err != nil {
		return nil, fmt.Errorf("%w: state manager: %w", ErrConfig, err)
	}
	if s.store, err = a.openStateStore(); err != nil {
		_ = s.listener.Close()
		return nil, fmt.Errorf("%w: state manager: %w", ErrConfig, err)
	}
	s.server = &tensor.Server{Store: s.store, Logger: a.log.Named("state")}
	for _, i := range s.store.List("") {
		if i.Damaged != "" {
			a.log.Error("a state on disk is lost; drop it", "state", i.Key, "error", i.Damaged)
		}
	}
	st := s.store.Stat()
	a.log.Info("state manager is open", "address", s.listener.Addr(), "memory_bytes", c.MemoryBytes,
		"states", st.States, "disk_bytes", st.DiskBytes, "disk_bytes_max", st.DiskBytesMax, "direct_io", st.DirectIO,
		"device", cmp.Or(st.Device, "none"), "device_bytes_max", st.DeviceBytesMax)
	return s, nil
}

// openStateStore opens the device of the state manager, and its store, which closes it.
func (a *agent) openStateStore() (*tensor.Store, error) {
	c, log := a.cfg.State, a.log.Named("state")
	d, notes, err := device.Open(c.Device)
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		log.Warn(note, "device", d.Name())
	}
	store, err := tensor.Open(tensor.Options{MemoryBytes: c.MemoryBytes, Dir: c.Dir, DiskBytes: c.DiskBytes, Remote: c.Remote, Device: d, Logger: log})
	if err != nil && d != nil {
		err = errors.Join(err, d.Close())
	}
	return store, err
}

func (s *states) serve(ctx context.Context) error {
	if err := s.server.Serve(ctx, s.listener); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("state manager: %w", err)
	}
	return ctx.Err()
}

// closeStates gives up what is in memory only.
func (a *agent) closeStates(s *states) {
	_ = s.listener.Close()
	for _, i := range s.store.List("") {
		if !i.OnDisk {
			a.log.Warn("a state that was not on disk ends with the agent", "state", i.Key, "bytes", i.Bytes)
		}
	}
	if err := s.store.Close(); err != nil {
		a.log.Error("the state manager did not end well", "error", err)
	}
}
