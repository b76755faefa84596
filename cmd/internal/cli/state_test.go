package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rota/agent/tensor"
	"rota/agent/tensor/device"
)

// stateStore is a store with one state, which is on disk and on a simulated device.
func stateStore(t *testing.T) (*tensor.Store, tensor.Key) {
	t.Helper()
	d, _, err := device.Open(device.Spec{Kind: device.Simulated, Bytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s, err := tensor.Open(tensor.Options{MemoryBytes: 8 << 20, Device: d, Dir: t.TempDir(), DiskBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k := tensor.Key{Deployment: "actor", Version: 3, Rank: 1}
	creation, err := s.Create(k, []tensor.Tensor{
		{Name: "w", DType: "float32", Shape: []uint64{256, 1024}, Global: []uint64{512, 1024}, Offset: []uint64{256, 0}, Group: "weights"},
	})
	if err == nil {
		_, err = creation.Commit()
	}
	if err == nil {
		_, err = s.Offload(k)
	}
	if err == nil {
		err = s.Restore(k)
	}
	if err == nil {
		err = s.ToDevice(k, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, k
}

func TestState(t *testing.T) {
	s, k := stateStore(t)
	dir, err := os.MkdirTemp("", "rota-*") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix:" + filepath.Join(dir, "s")
	l, err := tensor.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = (&tensor.Server{Store: s}).Serve(ctx, l)
	}()
	defer func() { cancel(); <-done }()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := (&app{out: &out, err: &out}).root()
		root.SetArgs(append([]string{"state"}, append(args, "--address", address)...))
		err := root.Execute()
		return out.String(), err
	}
	for _, c := range []struct {
		args  string
		wants []string
	}{
		{"list", []string{"actor/3/1", "1MiB", "device, disk"}},
		{"list other", []string{"STATE"}},
		{"stat", []string{"1, of 1MiB", "0 of 8MiB, and 1MiB ready to be filled", "simulated, 1MiB of 4MiB", "1MiB of 64MiB, in 1 blocks"}},
		{"stat actor/3/1", []string{"float32", "from [256 0] of [512 1024]", "weights"}},
	} {
		text, err := run(strings.Fields(c.args)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, text)
			}
		}
	}
	var infos []tensor.Info
	if text, err := run("list", "-o", "json"); err != nil || json.Unmarshal([]byte(text), &infos) != nil || len(infos) != 1 || infos[0].Key != k {
		t.Errorf("%s, %v", text, err)
	}
	var st tensor.Stat
	if text, err := run("stat", "-o", "json"); err != nil || json.Unmarshal([]byte(text), &st) != nil || st.DiskBytes != 1<<20 {
		t.Errorf("%s, %v", text, err)
	}
	for args, want := range map[string]string{"stat actor": "DEPLOYMENT/VERSION/RANK", "stat actor/4/0": "not found"} {
		if _, err := run(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	address = "unix:" + filepath.Join(dir, "none")
	if _, err := run("list"); err == nil || !strings.Contains(err.Error(), "--state-memory") {
		t.Errorf("without an agent: %v", err)
	}
}

func TestStateDevices(t *testing.T) {
	for text, want := range map[string]device.Spec{
		"none":           {},
		"simulated:2GiB": {Kind: device.Simulated, Bytes: 2 << 30},
		"cuda:3":         {Kind: device.CUDA, Index: 3},
		"cuda:0:40GiB":   {Kind: device.CUDA, Bytes: 40 << 30},
	} {
		var d, again stateDevice
		if err := d.Set(text); err != nil || device.Spec(d) != want {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
		if err := again.Set(d.String()); err != nil || again != d {
			t.Errorf("%s: read again as %+v, %v", d.String(), again, err)
		}
	}
	for _, text := range []string{"", "gpu:0", "simulated", "simulated:0", "simulated:x", "simulated:1:2", "cuda", "cuda:x", "cuda:-1", "cuda:0:0", "cuda:0:1:2"} {
		var d stateDevice
		if err := d.Set(text); err == nil || !strings.Contains(err.Error(), "simulated:4GiB") {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
}
