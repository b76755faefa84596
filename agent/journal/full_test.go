package journal

import (
	"errors"
	"fmt"
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

// What a journal has set aside is still there when it is opened again.
func TestAFullDiskLeavesRoomForAJournalThatIsOpenedAgain(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	path := filepath.Join(dir, "journal")
	j, err := Open(path, "boot")
	if err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	fill := func() {
		t.Helper()
		var err error
		for err == nil {
			_, err = filler.Write(make([]byte, 4<<10))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	fill()
	for n := range uint64(3) {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		fill()
		if j, err = Open(path, fmt.Sprintf("boot %d", n)); err != nil {
			t.Fatalf("open it on a full disk, the %d. time: %v", n+1, err)
		}
		fill()
		for i := range uint64(1000) { // more than the page that the file has anyway
			if err := j.Accept([]plan.Key{{Action: n*1000 + i + 1, Attempt: 1, Incarnation: 1}}); err != nil {
				t.Fatalf("attempt %d, at %d bytes: %v", i, j.size, err)
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
