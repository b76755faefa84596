package tensor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rota/internal/need"
)

// A block that no state needs is written over, and its file is right before and after a
// restart.
func TestSpareFilesAreWrittenOver(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(dir))
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	first, second := content{"w", "", text(1, 2*BlockBytes+7)}, content{"w", "", text(2, BlockBytes)}
	must(t, put(t, s, a, first))
	must(t, put(t, s, b, second))
	offload(t, s, a)
	must(t, s.Drop(a))
	if st := s.Stat(); st.SpareBytes != 2*BlockBytes || st.DiskBytes != 0 {
		t.Fatalf("%+v", st)
	}
	offload(t, s, b)
	if st := s.Stat(); st.SpareBytes != BlockBytes || st.DiskBytes != BlockBytes {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	s = open(t, roomy(dir))
	if files, err := os.ReadDir(filepath.Join(dir, spareName)); err != nil || len(files) > 0 || s.Stat().SpareBytes > 0 {
		t.Errorf("%d spare files of the agent before, %v", len(files), err)
	}
	must(t, s.Restore(b))
	wantState(t, s, b, second)
}

func TestSpareFilesMakeRoom(t *testing.T) {
	o := roomy(scratch(t))
	o.DiskBytes = 2*BlockBytes + 4096
	s := open(t, o)
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	must(t, put(t, s, a, content{"w", "", text(1, 2*BlockBytes)}))
	offload(t, s, a)
	must(t, s.Drop(a))
	must(t, put(t, s, b, content{"w", "", text(2, BlockBytes)}, content{"b", "", text(3, 4097)}))
	offload(t, s, b) // a block, and two pages: one spare is written over, one has to go
	if st := s.Stat(); st.SpareBytes != 0 || st.DiskBytes != BlockBytes+8192 {
		t.Errorf("%+v", st)
	}
	// A block that was damaged is no spare.
	must(t, os.Truncate(s.folder.block(s.states[b].tensors[0].hashes[0]), 3))
	must(t, s.Drop(b))
	if st := s.Stat(); st.SpareBytes != 0 || st.DiskBytes != 0 {
		t.Errorf("%+v", st)
	}
}

func TestSpareFilesOnAFullFileSystem(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s := open(t, roomy(filepath.Join(dir, "disk"))) // which may have more than there is
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	small := content{"w", "", text(2, 3<<20)}
	must(t, put(t, s, a, content{"w", "", text(1, BlockBytes)}))
	must(t, put(t, s, b, small))
	offload(t, s, a)
	must(t, s.Drop(a))
	offload(t, s, b)
	if st := s.Stat(); st.SpareBytes != 0 {
		t.Errorf("%+v", st)
	}
	must(t, s.Restore(b))
	wantState(t, s, b, small)
	must(t, s.Close())
}

// What the agent has filled can be written as little as what a worker has committed.
func TestARestoredStateCannotBeWritten(t *testing.T) {
	s := open(t, roomy(scratch(t)))
	k := Key{"a", 1, 0}
	w := content{"w", "", text(1, 10_000)}
	must(t, put(t, s, k, w))
	offload(t, s, k)
	must(t, s.Restore(k))
	v, err := s.View(k)
	must(t, err)
	defer v.Close()
	wantUnwritable(t, v.segments[0].file)
	slab, err := s.Read(Slice{Deployment: "a", Version: 1, Name: "w"})
	must(t, err)
	defer slab.Close()
	wantUnwritable(t, slab.segment.file)
	wantState(t, s, k, w)
}

// wantUnwritable tries every way to write a memfd that was passed.
func wantUnwritable(t *testing.T, file *os.File) {
	t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	fd := int(f.Fd())
	if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("it was written: %v", err)
	}
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("it was mapped for writing")
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); !errors.Is(err, unix.EPERM) {
		t.Errorf("it has a hole: %v", err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer func() { _ = unix.Munmap(mem) }()
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("a mapping for reading became one for writing")
	}
}
