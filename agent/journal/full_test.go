package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rota/agent/plan"
	"rota/internal/need"
)

// A disk that somebody has filled does not keep the journal from going on.
func TestAFullDiskLeavesRoomForTheJournal(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	j, err := Open(filepath.Join(dir, "journal"), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for n := range uint64(5000) { // more than the page that the file has anyway
		if err := j.Accept([]plan.Key{{Action: n + 1, Attempt: 1, Incarnation: 1}}); err != nil {
			t.Fatalf("attempt %d, at %d bytes: %v", n, j.size, err)
		}
	}
	if j.size < 64<<10 {
		t.Errorf("only %d bytes were written", j.size)
	}
}
