//go:build nvml

package inventory

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rota/internal/need"
)

// smi is what nvidia-smi says of GPU 0.
func smi(t *testing.T, fields string) []string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu="+fields, "--format=csv,noheader,nounits").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), ", ")
}

// TestGPUsOfThisMachine are those that nvidia-smi lists.
func TestGPUsOfThisMachine(t *testing.T) {
	need.GPU(t)
	inv, err := Read(Options{GPUs: GPUsAll})
	if err != nil {
		t.Fatal(err)
	}
	g, said := inv.GPUs, smi(t, "uuid,name,memory.total")
	list, err := exec.Command("nvidia-smi", "--list-gpus").Output()
	if err != nil {
		t.Fatal(err)
	}
	if g.Count != strings.Count(string(list), "UUID: GPU-") || len(g.UUIDs) != g.Count || len(g.Devices) != g.Count || g.Simulated() {
		t.Errorf("%+v of\n%s", g, list)
	}
	if g.UUIDs[0] != said[0] || g.Class != className(said[1]) || fmt.Sprint(g.MemoryBytes>>20) != said[2] {
		t.Errorf("%+v, nvidia-smi says %q", g, said)
	}
	if !regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(g.Class) {
		t.Errorf("class %q", g.Class)
	}
	if auto, err := Read(Options{}); err != nil || !slices.Equal(auto.GPUs.UUIDs, g.UUIDs) {
		t.Errorf("by itself: %+v, %v", auto.GPUs, err)
	}
}

// TestMemoryOfAGPU is in use while a process has it, and free soon after that was killed.
func TestMemoryOfAGPU(t *testing.T) {
	python := need.Torch(t)
	inv, err := Read(Options{GPUs: GPUsAll})
	if err != nil {
		t.Fatal(err)
	}
	memory := inv.GPUMemory()
	read := func() uint64 {
		used, total, err := memory(0)
		if err != nil || total != inv.GPUs.MemoryBytes || used >= total {
			t.Fatalf("%d of %d: %v", used, total, err)
		}
		return used
	}
	before, from := read(), time.Now()
	read()
	t.Logf("%d MiB in use of nothing; a reading takes %v", before>>20, time.Since(from))
	cmd := exec.Command(python, "-c", `import torch
x = torch.zeros(10 << 30, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
input()`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	held := read()
	if held < before+10<<30 || held > before+12<<30 {
		t.Errorf("%d MiB in use, %d before", held>>20, before>>20)
	}
	users, err := inv.GPUUsers(0)
	if err != nil || !slices.ContainsFunc(users, func(u GPUUser) bool { return u.PID == cmd.Process.Pid && u.Bytes >= 10<<30 }) {
		t.Errorf("process %d is not among %+v: %v", cmd.Process.Pid, users, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	for read() > before+16<<20 {
		if time.Since(killed) > time.Minute {
			t.Fatalf("%d MiB in use a minute after the kill, %d before", read()>>20, before>>20)
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("10 GiB free %v after the kill", time.Since(killed))
}

// TestHealthOfAGPU: one that is well is said to be, and tells of no XID.
func TestHealthOfAGPU(t *testing.T) {
	need.GPU(t)
	inv, err := Read(Options{GPUs: GPUsAll})
	if err != nil {
		t.Fatal(err)
	}
	p, err := inv.Probe()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		from := time.Now()
		if c := p.Conditions(0); c != nil {
			t.Errorf("%v, nvidia-smi says %v", c, smi(t, "ecc.errors.uncorrected.volatile.total,remapped_rows.pending,remapped_rows.failure"))
		}
		t.Logf("read in %v", time.Since(from))
	}
	from := time.Now()
	if gpu, xid, ok := p.Wait(200 * time.Millisecond); ok {
		t.Errorf("XID %d of GPU %d", xid, gpu)
	}
	if took := time.Since(from); took < 150*time.Millisecond || took > 10*time.Second {
		t.Errorf("waited for %v", took)
	}
	if p.(*probe).events == nil {
		t.Error("the driver tells of no events")
	}
}
