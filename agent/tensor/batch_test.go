package tensor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// named counts the blocks of a folder that have their names.
func named(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, blocksName))
	must(t, err)
	for _, file := range files {
		if !strings.Contains(file.Name(), newMark) {
			n++
		}
	}
	return n
}

// TestBlocksAreDurableBeforeTheyHaveNames: those of a batch are synced, and have no names meanwhile,
// also if they are written over spare files.
func TestBlocksAreDurableBeforeTheyHaveNames(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(dir))
	must(t, put(t, s, Key{"old", 1, 0}, content{"w", "", text(1, BlockBytes)}))
	offload(t, s, Key{"old", 1, 0})
	must(t, s.Drop(Key{"old", 1, 0}))
	k := Key{"a", 1, 0}
	c := []content{{"w", "", text(2, 3*BlockBytes+5)}, {"same", "", text(2, BlockBytes)}}
	must(t, put(t, s, k, c...))
	var synced, early atomic.Int64
	whole := syncFile
	t.Cleanup(func() { syncFile = whole })
	syncFile = func(file *os.File) error {
		synced.Add(1)
		early.Add(int64(named(t, dir)))
		return whole(file)
	}
	m := offload(t, s, k)
	if synced.Load() != 4 || early.Load() != 0 || named(t, dir) != 4 {
		t.Errorf("%d files synced, %d names before that, %d after", synced.Load(), early.Load(), named(t, dir))
	}
	if m.WrittenBytes != 3*BlockBytes+5 || m.UnchangedBytes != BlockBytes {
		t.Errorf("%+v", m)
	}
	must(t, s.Restore(k))
	wantState(t, s, k, c...)
}

// TestABlockThatCannotBeSynced: the state stays in memory, and nothing of it on disk.
func TestABlockThatCannotBeSynced(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(dir))
	k, c := Key{"a", 1, 0}, content{"w", "", text(1, 3*BlockBytes+5)}
	must(t, put(t, s, k, c))
	broken := errors.New("the disk is broken")
	whole := syncFile
	t.Cleanup(func() { syncFile = whole })
	syncFile = func(*os.File) error { return broken }
	if _, err := s.Offload(k); !errors.Is(err, broken) {
		t.Errorf("offload: %v", err)
	}
	if _, err := s.Checkpoint(k, filepath.Join(t.TempDir(), "saved")); !errors.Is(err, broken) {
		t.Errorf("checkpoint: %v", err)
	}
	files, err := os.ReadDir(filepath.Join(dir, blocksName))
	must(t, err)
	if st := s.Stat(); len(files) > 0 || st.Blocks > 0 || st.DiskBytes > 0 {
		t.Errorf("%d files are left: %+v", len(files), st)
	}
	wantState(t, s, k, c)
	syncFile = whole
	offload(t, s, k)
	must(t, s.Restore(k))
	wantState(t, s, k, c)
}

// TestStatesOfManyBatches: more blocks than are synced at once.
func TestStatesOfManyBatches(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(dir))
	k := Key{"a", 1, 0}
	var c []content
	for i := range 2*batchBlocks + 3 {
		c = append(c, content{string(rune('A' + i)), "", text(i, 100+i)})
	}
	must(t, put(t, s, k, c...))
	offload(t, s, k)
	if n := named(t, dir); n != len(c) {
		t.Errorf("%d of %d blocks", n, len(c))
	}
	must(t, s.Restore(k))
	wantState(t, s, k, c...)
}

// TestMemoryThatRots: a bit that flips in the memory of a state is found before its bytes are written,
// by the checksums of what was committed here and by the hashes of what was read.
func TestMemoryThatRots(t *testing.T) {
	s, _ := withDevice(t, 16<<20)
	a, b, saved := Key{"a", 1, 0}, Key{"b", 1, 0}, filepath.Join(t.TempDir(), "saved")
	c := content{"w", "", text(1, BlockBytes+100)}
	must(t, put(t, s, a, c))
	_, err := s.Checkpoint(a, saved)
	must(t, err)
	must(t, s.ToDevice(a, false))
	must(t, s.ToHost(a, true, true)) // its memory is the agent's now, who alone can write it
	flip := func(k Key) { s.states[k].segments[0].mem[BlockBytes+50] ^= 4 }
	flip(a)
	_, err = s.Offload(a)
	wantError(t, err, ErrCorrupt)
	flip(a)
	offload(t, s, a)
	must(t, s.Drop(a))
	_, err = s.Load(saved, a, b)
	must(t, err)
	if s.states[b].tensors[0].sums != nil {
		t.Error("a state that was loaded has checksums; this test is for one without")
	}
	flip(b)
	_, err = s.Offload(b)
	wantError(t, err, ErrCorrupt)
	flip(b)
	offload(t, s, b)
	must(t, s.Restore(b))
	wantState(t, s, b, c)
}

// TestMemoryThatRotsIsNotShared: once an operation has found a bit that flipped, states that come later
// have memory of their own, and their own copy on the device.
func TestMemoryThatRotsIsNotShared(t *testing.T) {
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	c := content{"w", "", text(1, 5000)}
	for name, find := range map[string]func(s *Store) error{
		"offload":    func(s *Store) error { _, err := s.Offload(a); return err },
		"checkpoint": func(s *Store) error { _, err := s.Checkpoint(a, scratch(t)); return err },
		"read":       func(s *Store) error { _, err := s.Read(Slice{Deployment: "a", Version: 1, Name: "w"}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := withDevice(t, 1<<20)
			must(t, put(t, s, a, c))
			must(t, s.ToDevice(a, false))
			must(t, s.ToHost(a, false, true)) // its memory is the agent's now, who alone can write it
			s.states[a].segments[0].mem[50] ^= 4
			wantError(t, find(s), ErrCorrupt)
			must(t, put(t, s, b, c))
			wantState(t, s, b, c)
			must(t, s.ToDevice(a, false))
			must(t, s.ToDevice(b, false))
			must(t, s.ToHost(b, false, true))
			wantState(t, s, b, c)
		})
	}
}

// TestAgentsWithOnePIDShareAFolder: a file that another agent is writing is neither in the way nor removed.
func TestAgentsWithOnePIDShareAFolder(t *testing.T) {
	s, saved, k := open(t, Options{MemoryBytes: 1 << 20}), scratch(t), Key{"a", 1, 0}
	must(t, put(t, s, k, content{"w", "", text(1, 100)}))
	f, err := openFolder(saved)
	must(t, err)
	for _, c := range []struct {
		process string
		want    error
	}{{process, fs.ErrExist}, {fmt.Sprint(os.Getpid()), nil}} {
		path := fmt.Sprintf("%s%s%s.%d", f.block(s.states[k].tensors[0].hashes[0]), newMark, c.process, names.Load()+1)
		must(t, os.WriteFile(path, []byte("half"), 0o600))
		if _, err := s.Checkpoint(k, saved); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", path, err, c.want)
		}
		if half, err := os.ReadFile(path); err != nil || string(half) != "half" {
			t.Errorf("%s: %q, %v", path, half, err)
		}
	}
}
