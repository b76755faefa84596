//go:build nvml

package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine/chunks"
	"rota/agent/inventory"
	"rota/internal/need"
)

// onGPU is the engine of a model that holds three quarters of a GPU, with the driver process: it
// cannot sleep.
func onGPU(model, notes string, gib uint64) *rotav1.EngineSpec {
	return &rotav1.EngineSpec{
		Model: model, Driver: rotav1.EngineDriver_ENGINE_DRIVER_PROCESS, StartTimeout: durationpb.New(patience), CallTimeout: durationpb.New(patience),
		Command: &rotav1.Command{Argv: []string{"python3", "testdata/gpu_engine.py", "{{port}}", fmt.Sprint(gib), notes}},
	}
}

// noted waits for lines of a file.
func noted(t *testing.T, path string, n int) []string {
	t.Helper()
	for from := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); len(text) > 0 && len(lines) >= n {
			return lines
		}
		if time.Since(from) > patience {
			t.Fatalf("%s has not %d lines: %q", path, n, text)
		}
	}
}

// TestAnEngineWaitsForTheMemoryOfAGPU: it starts only when NVML says that memory is free, whoever
// has it: another program, or the engine that leaves.
func TestAnEngineWaitsForTheMemoryOfAGPU(t *testing.T) {
	need.GPU(t)
	need.Tool(t, "python3")
	inv, err := inventory.Read(inventory.Options{GPUs: inventory.GPUsAll})
	if err != nil {
		t.Fatal(err)
	}
	gib := inv.GPUs.MemoryBytes >> 30 * 3 / 4
	n, dir := newNode(t), t.TempDir()
	n.halt()
	memory := inv.GPUMemory()
	asked := make(chan struct{}, 1<<16)
	n.boot(n.manager.Record, func(gpu int) (used, total uint64, err error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return memory(gpu)
	})

	other := exec.Command("python3", "testdata/gpu_engine.py", "0", fmt.Sprint(gib), filepath.Join(dir, "other"))
	other.Stderr = t.Output()
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	noted(t, filepath.Join(dir, "other.held"), 1)
	notes := filepath.Join(dir, "notes")
	n.desire(onGPU("a", notes, gib))
	for range 5 { // it asks, and does not start
		<-asked
	}
	if text, err := os.ReadFile(notes); err == nil {
		t.Fatalf("the engine was started on a GPU that is full: %s", text)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	n.until("a", chunks.StateReady)
	n.desire(onGPU("b", notes, gib)) // a is to go
	n.until("b", chunks.StateReady)
	n.until("a", 0)
	n.children.crash() // kill -9: another is started, when the memory of the dead one is free
	lines := noted(t, notes, 3)
	n.until("b", chunks.StateReady)
	for _, line := range lines {
		var port, free, total uint64
		if _, err := fmt.Sscan(line, &port, &free, &total); err != nil {
			t.Fatal(err)
		}
		if free < total*3/4 {
			t.Errorf("an engine began with %d of %d MiB free", free, total)
		}
	}
	t.Logf("port, free and total MiB as each engine began: %q", lines)
}
