package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"rota/agent/internal/record"
	"rota/agent/tier"
	"rota/agent/tier/kvfs"
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
	// Files is a directory whose files are the values of the cache, for SGLang HiCache's file back
	// end; empty for none. It needs root and FUSE.
	Files string
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
	if k.Files != "" && k.MemoryBytes == 0 {
		return k, fmt.Errorf("%w: the KV cache has a directory for files but no memory; give it memory too", ErrConfig)
	}
	if k.Files != "" && k.Dir != "" && (inside(k.Files, k.Dir) || inside(k.Dir, k.Files)) {
		return k, fmt.Errorf("%w: the KV cache keeps its disk tier in %s, so its files cannot be seen at %s; give it another directory", ErrConfig, k.Dir, k.Files)
	}
	return k, checkStore("KV cache", k.MemoryBytes, k.Dir, k.DiskBytes)
}

// inside says whether a path is a folder or lies in it.
func inside(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
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
	files    *kvfs.Dir // nil: none
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
		bootID, err = record.BootID()
	}
	if err == nil {
		k.store, err = tier.Open(tier.Options{MemoryBytes: c.MemoryBytes, Dir: c.Dir, DiskBytes: c.DiskBytes, BootID: bootID})
	}
	if err != nil {
		_ = k.listener.Close()
		return nil, fmt.Errorf("%w: KV cache: %w", ErrConfig, err)
	}
	if err := k.serveFilesAt(c.Files, a.specs.self, a.log.Named("kv")); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: files of the KV cache: %w", ErrConfig, err), k.listener.Close(), k.store.Close())
	}
	k.server = &resp.Server{Store: k.store, Password: c.Password, Logger: a.log.Named("kv")}
	if k.files != nil {
		k.server.Files = func() (string, bool) { return k.files.Path(), k.files.Mounted() }
	}
	st := k.store.Stat()
	a.log.Info("KV cache is open", "address", k.listener.Addr(), "memory_bytes", c.MemoryBytes, "disk", st.Disk,
		"disk_bytes", st.DiskBytes, "direct_io", st.Direct, "keys", st.Keys, "why", st.DiskWhy)
	return k, nil
}

// serveFilesAt mounts the directory; no path, no directory.
func (k *kv) serveFilesAt(path, program string, log hclog.Logger) (err error) {
	if path == "" {
		return nil
	}
	if k.files, err = kvfs.Mount(kvfs.Options{Store: k.store, Dir: path, Program: program, Logger: log}); err != nil {
		return err
	}
	log.Info("the KV cache can be used as files", "directory", k.files.Path())
	return nil
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
	if k.files != nil {
		if err := k.files.Close(); err != nil {
			a.log.Error("the directory of the KV cache stays mounted; the next agent takes it away", "error", err)
		}
	}
	if err := k.store.Close(); err != nil {
		a.log.Error("the KV cache did not end well; what is on its disk may be dropped after a reboot", "error", err)
	}
}
