package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// onGPU submits a command that holds GPUs until a file is there. Another file says that it has begun.
func (w *world) onGPU(file string, gpus ...uint32) uint64 {
	w.Helper()
	path := filepath.Join(w.dir, file)
	ids, err := w.api.Submit(w.Context(), &rotav1.ActionSpec{
		Command:   &rotav1.Command{Argv: []string{"sh", "-c", ": >" + path + ".begun; until test -e " + path + "; do sleep 0.05; done"}, Env: map[string]string{"E2E_WORLD": w.dir}},
		Resources: &rotav1.Resources{Cores: proto.Uint32(0), Gpus: &rotav1.GpuDemand{Gpus: gpus}},
	})
	if err != nil {
		w.Fatal(err)
	}
	return ids[0]
}

// health writes which simulated GPUs are sick.
func (w *world) health(text string) {
	w.Helper()
	file := filepath.Join(w.dir, "health")
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(file string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, file), nil, 0o600); err != nil {
		w.Fatal(err)
	}
}

// TestASickGPUIsOutOfUse: the node goes on without it. What runs there runs on, and what waits for
// it is told why; a killed agent says again what is sick; an operator has the last word.
func TestASickGPUIsOutOfUse(t *testing.T) {
	t.Parallel()
	dir := t.ArtifactDir()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{
		"--simulated-gpus", "2xH100:1GiB", "--simulated-gpu-health", filepath.Join(dir, "health"),
	}})
	agent := w.cluster.Agents[0]
	running := func(id uint64) func() bool {
		return func() bool { return w.action(id).State == rotav1.ActionState_ACTION_STATE_RUNNING }
	}
	first := w.onGPU("first", 1)
	w.until("the first action runs", running(first))
	gpu := w.action(first).GetGpus()[0]
	both := w.onGPU("both", 2)
	w.health(map[uint32]string{0: "0 XID 79\n", 1: "1 XID 79\n"}[gpu])
	w.until("the GPU is out of use", func() bool { return len(w.node(agent).UnhealthyGpus) == 1 })

	explained := func() string {
		out, _, _, _ := w.rota(strings.Join(w.cluster.Addrs(), ","), "action", "get", strconv.FormatUint(both, 10))
		return out
	}
	w.until("the other action is told why it waits", func() bool { return strings.Contains(explained(), "is out of use: XID 79") })
	if running(both)() {
		t.Error("an action has a GPU that is out of use")
	}
	w.create("first")
	w.ends([]uint64{first}, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	second := w.onGPU("second", 1)
	w.until("another action runs on the other GPU", running(second))
	if got := w.action(second).GetGpus(); got[0] == gpu {
		t.Errorf("it runs on GPU %d, which is sick", gpu)
	}
	w.until("its process runs", func() bool { _, err := os.Stat(filepath.Join(w.dir, "second.begun")); return err == nil })
	w.kill(agent)
	w.start(agent)
	w.create("second")
	w.ends([]uint64{second}, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	if got := w.node(agent).UnhealthyGpus; len(got) != 1 || got[0].Sick != "XID 79" {
		t.Errorf("after a restart of the agent %v", got)
	}
	if _, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), "gpu", "disable", agent.Name, "0-1", "--reason", "fan"); code != 0 {
		t.Fatalf("gpu disable: %v", stderr)
	}
	w.health("")
	w.until("the agent finds the GPU well", func() bool { u := w.node(agent).UnhealthyGpus; return len(u) == 2 && u[gpu].Sick == "" })
	if running(both)() {
		t.Error("an action has GPUs that an operator has disabled")
	}
	if _, stderr, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), "gpu", "enable", agent.Name, "0-1"); code != 0 {
		t.Fatalf("gpu enable: %v", stderr)
	}
	w.until("both GPUs are used", running(both))
	w.create("both")
	w.ends([]uint64{both}, rotav1.ActionState_ACTION_STATE_SUCCEEDED)
	w.sameHash()
}
