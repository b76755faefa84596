package agent

import (
	"context"
	"errors"
	"fmt"
	"net"

	"rota/agent/tier"
	"rota/agent/tier/resp"
)

// DefaultKVListen is where the cache of a node is served.
const DefaultKVListen = "127.0.0.1:6380"

// KV configures the cache of the node for KV caches of engines.
type KV struct {
	// MemoryBytes is the memory tier; 0 for no cache. The node offers that much less.
	MemoryBytes uint64
	// Dir is a folder for the disk tier, alone; empty for none. DiskBytes bounds it.
	Dir       string
	DiskBytes uint64
	// Listen is loopback or unix:/path; DefaultKVListen if empty.
	Listen string
	// Password has to be given by clients; empty: none is asked for.
	Password string
	// MigrationBytesPerSecond limits what is pulled from other nodes' caches; 0: no limit.
	MigrationBytesPerSecond uint64
}

// withDefaults checks what can be checked before the machine is looked at.
func (k KV) withDefaults() (KV, error) {
	if k.Listen == "" {
		k.Listen = DefaultKVListen
	}
	return k, checkStore("KV cache", k.MemoryBytes, k.Dir, k.DiskBytes)
}

// checkStore refuses a part of the agent that is given a disk and no memory, or half of a disk.
func checkStore(part string, memory uint64, dir string, disk uint64) error {
	switch {
	case memory == 0 && (dir != "" || disk > 0):
		return fmt.Errorf("%w: the %s has a disk but no memory; give it memory too", ErrConfig, part)
	case dir == "" && disk > 0:
		return fmt.Errorf("%w: the %s has a disk size but no folder; give it one", ErrConfig, part)
	case dir != "" && disk == 0:
		return fmt.Errorf("%w: the %s has a folder but no disk size; give it one", ErrConfig, part)
	}
	return nil
}

// kv is the open cache of the node.
type kv struct {
	store    *tier.Store
	listener net.Listener
	server   *resp.Server
}

// takeMemory takes memory for a part of the agent out of what the node offers.
func (a *agent) takeMemory(part string, want uint64) error {
	if want > 0 && want >= a.inv.MemoryBytes {
		return fmt.Errorf("%w: the %s is to have %d bytes of memory, and the node offers %d; give it less",
			ErrConfig, part, want, a.inv.MemoryBytes)
	}
	a.inv.MemoryBytes -= want
	return nil
}

// openKV opens the cache and listens; nil if there is none.
func (a *agent) openKV() (_ *kv, err error) {
	c := a.cfg.KV
	if c.MemoryBytes == 0 {
		return nil, nil
	}
	k := &kv{}
	if k.listener, err = resp.Listen(c.Listen); err != nil {
		return nil, fmt.Errorf("%w: KV cache: %w", ErrConfig, err)
	}
	bootID := a.cfg.bootID
	if bootID == "" {
		bootID, err = readBootID()
	}
	if err == nil {
		k.store, err = tier.Open(tier.Options{MemoryBytes: c.MemoryBytes, Dir: c.Dir, DiskBytes: c.DiskBytes, BootID: bootID})
	}
	if err != nil {
		_ = k.listener.Close()
		return nil, fmt.Errorf("%w: KV cache: %w", ErrConfig, err)
	}
	k.server = &resp.Server{Store: k.store, Password: c.Password, Logger: a.log.Named("kv")}
	st := k.store.Stat()
	a.log.Info("KV cache is open", "address", k.listener.Addr(), "memory_bytes", c.MemoryBytes, "disk", st.Disk,
		"disk_bytes", st.DiskBytes, "direct_io", st.Direct, "keys", st.Keys, "why", st.DiskWhy)
	return k, nil
}

func (k *kv) serve(ctx context.Context) error {
	if err := k.server.Serve(ctx, k.listener); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("KV cache: %w", err)
	}
	return ctx.Err()
}

// close writes to disk what is in memory only.
func (a *agent) closeKV(k *kv) {
	_ = k.listener.Close()
	if err := k.store.Close(); err != nil {
		a.log.Error("the KV cache did not end well; what is on its disk may be dropped after a reboot", "error", err)
	}
}
