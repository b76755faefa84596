package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"rota/agent/tensor"
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
	// Listen is unix:/path; StateSocket in the folder of the agent if empty.
	Listen string
}

// withDefaults checks what can be checked before the machine is looked at.
func (s State) withDefaults(dir string) (State, error) {
	if s.Listen == "" {
		s.Listen = "unix:" + filepath.Join(dir, StateSocket)
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
	s.store, err = tensor.Open(tensor.Options{MemoryBytes: c.MemoryBytes, Dir: c.Dir, DiskBytes: c.DiskBytes})
	if err != nil {
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
		"states", st.States, "disk_bytes", st.DiskBytes, "disk_bytes_max", st.DiskBytesMax, "direct_io", st.DirectIO)
	return s, nil
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
		if i.InMemory && !i.OnDisk {
			a.log.Warn("a state that was in memory only ends with the agent", "state", i.Key, "bytes", i.Bytes)
		}
	}
	if err := s.store.Close(); err != nil {
		a.log.Error("the state manager did not end well", "error", err)
	}
}
