package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"rota/agent/tier/resp"
)

// kvConfig is that of an agent with a cache of two tiers.
func kvConfig(t *testing.T, c *cluster, s *supervisor) Config {
	cfg := config(t, c, s)
	dir := t.TempDir()
	cfg.MemoryBytes = 1 << 30
	cfg.KV = KV{MemoryBytes: 64 << 20, Dir: filepath.Join(dir, "kv"), DiskBytes: 256 << 20, Listen: "unix:" + filepath.Join(dir, "kv.sock")}
	return cfg
}

// kvKeys returns how many keys the cache of an agent has.
func kvKeys(t *testing.T, address string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		fields, err := resp.Info(ctx, address, "")
		if err == nil {
			return fields["keys"]
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestTheCacheOutlivesIncarnationsAndRestarts(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := kvConfig(t, c, s)
	stop := start(t, cfg)
	if got := kvKeys(t, cfg.KV.Listen); got != "0" {
		t.Errorf("%s keys", got)
	}
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	if got := c.registered[0].MemoryBytes; got != 1<<30-64<<20 {
		t.Errorf("the node offers %d bytes of memory", got)
	}
	client, err := net.Dial("unix", cfg.KV.Listen[len("unix:"):])
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	say := func(request, want string) {
		t.Helper()
		_ = client.SetDeadline(time.Now().Add(20 * time.Second))
		got := make([]byte, len(want))
		_, err := client.Write([]byte(request))
		if n, _ := client.Read(got); err != nil || string(got[:n]) != want {
			t.Fatalf("%q answers %q, %v; want %q", request, got[:n], err, want)
		}
	}
	say("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n", "+OK\r\n")
	c.change(func() { c.fenced, c.incarnation = true, 0 })
	c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
	say("GET key\r\n", "$5\r\nvalue\r\n")
	stop()
	start(t, cfg)
	if got := kvKeys(t, cfg.KV.Listen); got != "1" {
		t.Errorf("%s keys after a restart", got)
	}
}

func TestCachesThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a disk without memory":    func(c *Config) { c.KV.MemoryBytes = 0 },
		"a disk without a size":    func(c *Config) { c.KV.DiskBytes = 0 },
		"a size without a folder":  func(c *Config) { c.KV.Dir = "" },
		"all of the memory":        func(c *Config) { c.KV.MemoryBytes = c.MemoryBytes },
		"little memory":            func(c *Config) { c.KV.MemoryBytes = 1 },
		"every interface":          func(c *Config) { c.KV.Listen = "0.0.0.0:0" },
		"files without memory":     func(c *Config) { c.KV = KV{Files: "/tmp/files"} },
		"files in the disk tier":   func(c *Config) { c.KV.Files = filepath.Join(c.KV.Dir, "files") },
		"files that are no folder": func(c *Config) { c.KV.Files = "/dev/null" },
		"a folder that is no such": func(c *Config) { c.KV.Dir = "/dev/null" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := kvConfig(t, &cluster{addresses: []string{"127.0.0.1:1"}}, newSupervisor(t))
			change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := Run(ctx, cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("the agent ran: %v, want ErrConfig", err)
			}
		})
	}
}
