package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestFilesMigrate: what SGLang's file back end has written at one node, it finds at another after a
// migration, though the target's agent was killed before and left a dead mount.
func TestFilesMigrate(t *testing.T) {
	t.Parallel()
	need.FUSE(t)
	need.Tool(t, "python3")
	dir := t.TempDir()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 2, AgentArgs: []string{
		"--kv-memory", "64MiB", "--kv-listen", "127.0.0.1:0", "--kv-files", filepath.Join(dir, "{{name}}"),
	}})
	const pages, size = 20, 128 << 10
	hicache := func(node, what string) error {
		cmd := exec.Command("python3", "../../../agent/tier/kvfs/testdata/hicache.py", filepath.Join(dir, node), what, fmt.Sprint(pages), fmt.Sprint(size))
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	w.until("node-1 stores pages", func() bool { return hicache("node-1", "fill") == nil })
	w.kill(w.cluster.Agents[1])
	if hicache("node-2", "fill") == nil {
		t.Error("an engine stores pages though no agent is there")
	}
	w.start(w.cluster.Agents[1])
	k := &kvCaches{world: w}
	var id uint64
	w.until("the migration is accepted", func() bool {
		resp, err := w.api.RequestMigration(t.Context(), &rotav1.RequestMigrationRequest{
			Source: "node-1", Target: "node-2", Selector: &rotav1.MigrationSelector{Prefixes: []string{"page"}},
		})
		id = resp
		return err == nil
	})
	m := k.is(id, rotav1.MigrationState_MIGRATION_STATE_DONE)
	if m.Progress.MovedBytes != pages*size {
		t.Errorf("%v", m.Progress)
	}
	if err := hicache("node-2", "check"); err != nil {
		t.Error(err)
	}
}
