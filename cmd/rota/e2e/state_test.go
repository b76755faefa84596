package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"rota/agent/tensor"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestStatesOfPythonWorkers runs the tests of the Python client's states against a real
// agent, which is killed then: what was offloaded is there when it comes back.
func TestStatesOfPythonWorkers(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	dir, err := os.MkdirTemp("", "rota-*") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix:" + filepath.Join(dir, "s")
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{
		"--state-memory", "64MiB", "--state-disk", filepath.Join(dir, "states"), "--state-disk-size", "64MiB", "--state-listen", address,
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	list := func() (states []tensor.Info, err error) {
		c, err := tensor.Dial(ctx, address)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.List("")
	}
	w.until("the state manager answers", func() bool { _, err := list(); return err == nil })
	tests := pythonTests(ctx, "test_state.py")
	tests.Env = append(tests.Env, "ROTA_STATE="+address)
	if out, err := tests.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	states, err := list()
	if err != nil {
		t.Fatal(err)
	}
	durable := map[tensor.Key]bool{}
	for _, s := range states {
		if s.OnDisk {
			durable[s.Key] = true
		}
	}
	if len(durable) == 0 || len(durable) == len(states) {
		t.Fatalf("%d of %d states are on disk; some should be, and some not", len(durable), len(states))
	}
	agent := w.cluster.Agents[0]
	w.kill(agent)
	w.start(agent)
	w.until("the state manager answers again", func() bool { states, err = list(); return err == nil })
	if len(states) != len(durable) {
		t.Errorf("%d states are there, %d were on disk", len(states), len(durable))
	}
	for _, s := range states {
		if !durable[s.Key] || s.Damaged != "" {
			t.Errorf("%+v", s)
		}
	}
}
