package agent

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rota/agent/tier/resp"
	"rota/internal/need"
)

// TestTheCacheAsFiles: what one agent was given as a file, the next has, and a directory that
// nobody serves is none.
func TestTheCacheAsFiles(t *testing.T) {
	need.FUSE(t)
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := kvConfig(t, c, s)
	cfg.KV.Files = filepath.Join(t.TempDir(), "files")
	sh := func(script string) string {
		t.Helper()
		out, err := exec.Command("sh", "-c", script, cfg.KV.Files).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	stop := start(t, cfg)
	kvKeys(t, cfg.KV.Listen)
	if fields, err := resp.Info(t.Context(), cfg.KV.Listen, ""); err != nil || fields["files_directory"] != cfg.KV.Files || fields["files_mounted"] != "true" {
		t.Errorf("the cache says %v, %v", fields, err)
	}
	sh(`printf value > "$0/page.bin"`)
	if got := kvKeys(t, cfg.KV.Listen); got != "1" {
		t.Errorf("%s keys", got)
	}
	stop()
	if got := sh(`ls -A "$0"`); got != "" {
		t.Errorf("without an agent there is %q", got)
	}
	stop = start(t, cfg)
	kvKeys(t, cfg.KV.Listen)
	if got := sh(`cat "$0/page.bin"`); got != "value" {
		t.Errorf("the next agent has %q", got)
	}
	stop()
	if got := sh(`grep -c "$0" /proc/self/mountinfo || true`); strings.TrimSpace(got) != "0" {
		t.Errorf("%s mounts are left", got)
	}
}
