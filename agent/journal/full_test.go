package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/internal/need"
)

// smallDisk is a disk of 8 MiB that can be filled.
func smallDisk(t *testing.T) (dir string) {
	t.Helper()
	need.Root(t)
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// A disk that somebody has filled does not keep the journal from going on.
func TestAFullDiskLeavesRoomForTheJournal(t *testing.T) {
	dir := smallDisk(t)
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
	dir := smallDisk(t)
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

// TestAFullDiskPutsTheCompactionOff: the journal goes on as it is, leaves nothing of the new file behind,
// and is compacted when there is room again.
func TestAFullDiskPutsTheCompactionOff(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "journal")
	j, err := Open(path, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	keys := make([]plan.Key, 1000)
	for i := range keys {
		keys[i] = plan.Key{Action: uint64(i) + 1, Attempt: 1, Incarnation: 1}
	}
	grow := func() {
		t.Helper()
		if err := errors.Join(j.Accept(keys), j.Forget(keys)); err != nil {
			t.Fatalf("at %d bytes: %v", j.size, err)
		}
	}
	for j.size < compactMin*9/10 {
		grow()
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 8<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for j.size < compactMin+100_000 {
		grow()
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the new file is left: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for j.size > compactMin {
		if j.size > 3*compactMin {
			t.Fatalf("it is not compacted at %d bytes", j.size)
		}
		grow()
	}
}

// TestAHangingDiskHoldsUpWritesOnly: what is asked of the journal for the metrics and for calls is
// answered during a write.
func TestAHangingDiskHoldsUpWritesOnly(t *testing.T) {
	j, err := Open(filepath.Join(t.TempDir(), "journal"), "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.SetIncarnation(7); err != nil {
		t.Fatal(err)
	}
	j.mu.Lock() // as a write does that hangs
	defer j.mu.Unlock()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if j.Incarnation() != 7 || j.Size() != j.size {
			t.Errorf("incarnation %d, %d bytes", j.Incarnation(), j.Size())
		}
	}()
	select {
	case <-asked:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the write")
	}
}
