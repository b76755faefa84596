package agent

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"rota/agent/tensor"
	"rota/agent/tensor/device"
)

// stateConfig is that of an agent with a state manager.
func stateConfig(t *testing.T, c *cluster, s *supervisor) Config {
	cfg := config(t, c, s)
	dir := t.TempDir()
	cfg.MemoryBytes = 1 << 30
	cfg.State = State{MemoryBytes: 64 << 20, Dir: filepath.Join(dir, "states"), DiskBytes: 64 << 20, Listen: "unix:" + filepath.Join(dir, "s")}
	return cfg
}

// askStates waits until the state manager of an agent answers.
func askStates(t *testing.T, address string) []tensor.Info {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		c, err := tensor.Dial(ctx, address)
		if err == nil {
			defer c.Close()
			states, err := c.List("")
			if err != nil {
				t.Fatal(err)
			}
			return states
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestStatesOnDiskOutliveTheAgent(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := stateConfig(t, c, s)
	store, err := tensor.Open(tensor.Options{MemoryBytes: 1 << 20, Dir: cfg.State.Dir, DiskBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	k := tensor.Key{Deployment: "actor", Version: 3}
	creation, err := store.Create(k, []tensor.Tensor{{Name: "w", DType: "float32", Shape: []uint64{100}}})
	if err == nil {
		_, err = creation.Commit()
	}
	if err == nil {
		_, err = store.Offload(k)
	}
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	var offered uint64
	for n := range 2 {
		stop := start(t, cfg)
		if got := askStates(t, cfg.State.Listen); len(got) != 1 || got[0].Key != k || !got[0].OnDisk {
			t.Errorf("%+v", got)
		}
		c.until("the node is registered", func(c *cluster) bool {
			if len(c.registered) <= n {
				return false
			}
			offered = c.registered[n].MemoryBytes
			return true
		})
		stop()
	}
	if offered != 1<<30-64<<20 {
		t.Errorf("the node offers %d bytes of memory", offered)
	}
}

// A simulated device is memory of the node.
func TestTheNodeOffersWhatADeviceLeaves(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := stateConfig(t, c, s)
	cfg.State.Device = device.Spec{Kind: device.Simulated, Bytes: 16 << 20}
	stop := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	askStates(t, cfg.State.Listen)
	client, err := tensor.Dial(ctx, cfg.State.Listen)
	if err != nil {
		t.Fatal(err)
	}
	st, err := client.Stat()
	if err := errors.Join(err, client.Close()); err != nil {
		t.Fatal(err)
	}
	c.until("the node is registered", func(c *cluster) bool { return len(c.registered) > 0 })
	stop()
	if st.Device != "simulated" || st.DeviceBytesMax != 16<<20 {
		t.Errorf("%+v", st)
	}
	if got := c.registered[0].MemoryBytes; got != 1<<30-80<<20 {
		t.Errorf("the node offers %d bytes of memory", got)
	}
}

func TestStateManagersThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a disk without memory":   func(c *Config) { c.State.MemoryBytes = 0 },
		"a disk without a size":   func(c *Config) { c.State.DiskBytes = 0 },
		"a size without a folder": func(c *Config) { c.State.Dir = "" },
		"all of the memory":       func(c *Config) { c.State.MemoryBytes = c.MemoryBytes },
		"all that the cache left": func(c *Config) { c.KV.MemoryBytes = c.MemoryBytes - c.State.MemoryBytes },
		"all for engines":         func(c *Config) { c.EnginesAsleepBytes = c.MemoryBytes - c.State.MemoryBytes },
		"little memory":           func(c *Config) { c.State.MemoryBytes = 1 },
		"a device without memory": func(c *Config) {
			c.State = State{Device: device.Spec{Kind: device.Simulated, Bytes: 1 << 20}, Listen: c.State.Listen}
		},
		"a device of all memory":   func(c *Config) { c.State.Device = device.Spec{Kind: device.Simulated, Bytes: c.MemoryBytes} },
		"a device that is no such": func(c *Config) { c.State.Device = device.Spec{Kind: device.CUDA, Index: 1 << 20} },
		"a store without a scheme": func(c *Config) { c.State.Remote = "bucket/states" },
		"a store without memory":   func(c *Config) { c.State = State{Remote: "s3://bucket/states", Listen: c.State.Listen} },
		"a port":                   func(c *Config) { c.State.Listen = "127.0.0.1:0" },
		"a folder that is no such": func(c *Config) { c.State.Dir = "/dev/null" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := stateConfig(t, &cluster{addresses: []string{"127.0.0.1:1"}}, newSupervisor(t))
			change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := Run(ctx, cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("the agent ran: %v, want ErrConfig", err)
			}
		})
	}
}
