package cluster

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rota/internal/need"
)

// A mark behind the end of the kept binary would not survive linking.
func TestARepeatedBuildLinksNothing(t *testing.T) {
	need.Tool(t, "go")
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	o := BuildOptions{Package: "rota/api/internal/docgen"}
	first, err := Build(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "rota-builds", "docgen-*[0-9a-f]"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept are %v: %v", kept, err)
	}
	mark := []byte("mark")
	if err := os.WriteFile(kept[0], append(read(t, first), mark...), 0o755); err != nil {
		t.Fatal(err)
	}
	again, err := Build(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(read(t, again), mark) {
		t.Error("the same sources were linked again")
	}
	if bytes.HasSuffix(read(t, first), mark) {
		t.Error("a binary has changed since it was built")
	}
	o.LDFlags = "-X main.other=1"
	other, err := Build(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.HasSuffix(read(t, other), mark) {
		t.Error("another build is the one that was kept")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
