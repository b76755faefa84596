package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// The root file system of a sandbox whose record cannot be read is not taken for one that nothing needs.
func TestAnUnreadableRecordOfASandboxIsNotMissing(t *testing.T) {
	m, err := NewManager(Options{Dir: t.TempDir(), Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	for _, trajectory := range []uint64{7, 8} {
		if err := os.MkdirAll(m.dir(trajectory), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(m.dir(7), recordName)
	if err := save(path, &record{Parent: "below"}); err != nil {
		t.Fatal(err)
	}
	if parents, err := m.parents(); err != nil || len(parents) != 1 || !parents["below"] {
		t.Fatalf("parents %v: %v", parents, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as a disk may leave it
		t.Fatal(err)
	}
	if parents, err := m.parents(); err == nil {
		t.Errorf("with a damaged record, parents %v without an error", parents)
	}
	if r, err := m.opened(7); r != nil || err != nil {
		t.Errorf("a damaged record keeps the sandbox from being made anew: %v, %v", r, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // what cannot be read, even by root
		t.Fatal(err)
	}
	if r, err := m.opened(7); err == nil {
		t.Errorf("an unreadable record is taken for %v", r)
	}
}
