package tensor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rota/internal/need"
)

// TestDamageAtEveryByteOfAManifest: a manifest that is cut or changed at any byte is never
// taken for one.
func TestDamageAtEveryByteOfAManifest(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(dir))
	k := Key{"actor", 3, 1}
	w, other := content{"w", "g", text(1, 100)}, content{"o", "", text(2, 100)}
	must(t, put(t, s, k, w, content{"b", "", text(2, 50)}))
	must(t, put(t, s, Key{"other", 1, 0}, other))
	offload(t, s, k)
	offload(t, s, Key{"other", 1, 0})
	path := s.folder.manifest(k)
	must(t, s.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	if found, tensors, err := decodeManifest(whole); err != nil || found != k || len(tensors) != 2 {
		t.Fatalf("%v, %d tensors, %v", found, len(tensors), err)
	}
	for i := range whole {
		if _, _, err := decodeManifest(whole[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at byte %d: %v", i, err)
		}
		for bit := range 8 {
			data := bytes.Clone(whole)
			data[i] ^= 1 << bit
			if _, _, err := decodeManifest(data); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("bit %d of byte %d: %v", bit, i, err)
			}
		}
	}
	must(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	s = open(t, roomy(dir))
	wantError(t, s.Restore(k), ErrCorrupt)
	if got := s.List("actor"); len(got) != 1 || got[0].Damaged == "" || s.Stat().Corrupt == 0 {
		t.Errorf("%+v", got)
	}
	must(t, s.Restore(Key{"other", 1, 0})) // the others are whole
	wantState(t, s, Key{"other", 1, 0}, other)
	must(t, s.Close())
	must(t, os.WriteFile(path, whole, 0o600)) // its blocks were left alone
	s = open(t, roomy(dir))
	must(t, s.Restore(k))
	must(t, os.WriteFile(path, whole[1:], 0o600))
	must(t, s.Close())
	s = open(t, roomy(dir))
	must(t, s.Drop(k))
	must(t, put(t, s, k, w))
}

// TestDamageAtEveryByteOfABlock: a block that is cut or changed at any byte is noticed by
// whatever reads it, and written anew by the next offload or checkpoint that has its bytes.
func TestDamageAtEveryByteOfABlock(t *testing.T) {
	t.Parallel()
	const size = 250
	dir := scratch(t)
	s := open(t, roomy(filepath.Join(dir, "disk")))
	k, twin, checkpoint := Key{"a", 1, 0}, Key{"a", 2, 0}, filepath.Join(dir, "checkpoint")
	w := content{"w", "", text(1, size)}
	must(t, put(t, s, k, w))
	_, err := s.Checkpoint(k, checkpoint)
	must(t, err)
	h := s.states[k].tensors[0].hashes[0]
	offload(t, s, k)
	saved := folder{dir: checkpoint}
	uses := []struct {
		path string
		use  func() error
	}{
		{s.folder.block(h), func() error { return s.Restore(k) }},
		{s.folder.block(h), func() error { _, err := s.Read(Slice{Deployment: "a", Version: 1, Name: "w"}); return err }},
		{s.folder.block(h), func() error { _, err := s.Checkpoint(k, checkpoint); return err }},
		{saved.block(h), func() error { _, err := s.Load(checkpoint, k, twin); return err }},
	}
	for i := range size {
		for _, u := range uses {
			damaged := bytes.Clone(w.data)
			damaged[i] ^= 1 << (i % 8)
			for _, data := range [][]byte{damaged, w.data[:i]} {
				must(t, os.WriteFile(u.path, data, 0o600))
				wantError(t, u.use(), ErrCorrupt)
			}
			must(t, os.WriteFile(u.path, w.data, 0o600))
		}
	}
	must(t, os.Remove(s.folder.block(h)))
	wantError(t, s.Restore(k), ErrCorrupt)
	must(t, put(t, s, twin, w)) // the same bytes: the block is written anew
	offload(t, s, twin)
	must(t, s.Restore(k))
	wantState(t, s, k, w)
	must(t, os.WriteFile(saved.block(h), w.data[1:], 0o600))
	m, err := s.Checkpoint(k, checkpoint)
	if err != nil || m.WrittenBytes != size {
		t.Errorf("%+v, %v", m, err)
	}
	must(t, s.Drop(twin))
	_, err = s.Load(checkpoint, k, twin)
	must(t, err)
	if n := s.Stat().MemoryBytes; n != 4096 {
		t.Errorf("%d bytes of memory for one page that is shared", n)
	}
}

// What a crash leaves between two writes goes when the store is opened.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(dir))
	w := content{"w", "", text(1, 100)}
	must(t, put(t, s, Key{"a", 1, 0}, w))
	offload(t, s, Key{"a", 1, 0})
	must(t, s.Close())
	left := []string{
		filepath.Join(blocksName, strings.Repeat("ab", 32)), filepath.Join(blocksName, strings.Repeat("ab", 32)+".new1.2"),
		filepath.Join(blocksName, "x"), filepath.Join(statesName, "a@2@0.new"),
	}
	for _, name := range left {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600))
	}
	s = open(t, roomy(dir))
	for _, name := range left {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s stays: %v", name, err)
		}
	}
	must(t, s.Restore(Key{"a", 1, 0}))
	wantState(t, s, Key{"a", 1, 0}, w)
}

func TestAFullFileSystem(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s := open(t, roomy(filepath.Join(dir, "disk"))) // which may have more than there is
	small, large := content{"w", "", text(1, 500_000)}, content{"w", "", text(2, 3<<20)}
	must(t, put(t, s, Key{"a", 1, 0}, small))
	must(t, put(t, s, Key{"a", 2, 0}, large))
	offload(t, s, Key{"a", 1, 0})
	_, err := s.Offload(Key{"a", 2, 0})
	wantError(t, err, ErrDisk)
	_, err = s.Checkpoint(Key{"a", 2, 0}, filepath.Join(dir, "checkpoint"))
	wantError(t, err, ErrDisk)
	wantState(t, s, Key{"a", 2, 0}, large)
	must(t, s.Restore(Key{"a", 1, 0}))
	wantState(t, s, Key{"a", 1, 0}, small)
	if st := s.Stat(); st.Blocks != 1 {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
}

// The test binary is also a process that moves states until it is killed.
const dirEnv = "ROTA_TEST_TENSOR"

// storyOnGPU is what the process does instead if gpuEnv is set.
const gpuEnv = "ROTA_TEST_TENSOR_GPU"

var storyOnGPU func(dir string, out io.Writer) error

func TestMain(m *testing.M) {
	dir := os.Getenv(dirEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	story := moveForever
	if os.Getenv(gpuEnv) != "" {
		story = storyOnGPU
	}
	if err := story(dir, os.Stdout); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// contentOf is what a version of the story has: a block that all have, and two of its own, of
// which the whole one is written over a spare file.
func contentOf(version uint64) []content {
	return []content{{"shared", "s", text(0, 50_000)}, {"own", "o", text(int(version), BlockBytes+90_000)}}
}

// moveForever says what it is about to do, and what it was told is done.
func moveForever(dir string, out io.Writer) error {
	s, err := Open(roomy(filepath.Join(dir, "disk")))
	if err != nil {
		return err
	}
	say := func(word string, version uint64) { fmt.Fprintln(out, word, version) }
	for version := uint64(1); ; version++ {
		k := Key{"a", version, 0}
		if err := put(&testing.B{}, s, k, contentOf(version)...); err != nil {
			return err
		}
		if _, err := s.Checkpoint(k, filepath.Join(dir, "saved")); err != nil {
			return err
		}
		say("saved", version)
		if _, err := s.Offload(k); err != nil {
			return err
		}
		say("offloaded", version)
		if version > 3 {
			say("dropping", version-3)
			if err := s.Drop(Key{"a", version - 3, 0}); err != nil {
				return err
			}
			say("dropped", version-3)
		}
	}
}

// TestAProcessThatIsKilled: what was acknowledged before a SIGKILL is there, whole, after it,
// and nothing else is in the way. It runs alone: a child that was just forked holds the locks
// of the stores of other tests until it has called exec.
func TestAProcessThatIsKilled(t *testing.T) {
	for lines := 1; lines <= 41; lines += 8 {
		dir := scratch(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", dirEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		done := map[string]map[uint64]bool{"saved": {}, "offloaded": {}, "dropping": {}, "dropped": {}}
		n := 0
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var word string
			var version uint64
			if _, err := fmt.Sscan(scan.Text(), &word, &version); err != nil || done[word] == nil {
				t.Fatalf("the process says %q", scan.Text())
			}
			done[word][version] = true
			if n++; n == lines {
				must(t, cmd.Process.Kill()) // what it says until it is dead counts, too
			}
		}
		if err := cmd.Wait(); err == nil || n < lines {
			t.Fatalf("the process ended by itself after %d lines: %v", n, err)
		}
		checkAfterKill(t, dir, done)
	}
}

func checkAfterKill(t *testing.T, dir string, done map[string]map[uint64]bool) {
	t.Helper()
	s := open(t, roomy(filepath.Join(dir, "disk")))
	there := map[uint64]bool{}
	for _, i := range s.List("") {
		there[i.Version] = true
		must(t, s.Restore(i.Key))
		wantState(t, s, i.Key, contentOf(i.Version)...)
		if done["dropped"][i.Version] {
			t.Errorf("version %d came back", i.Version)
		}
	}
	for version := range done["offloaded"] {
		if !there[version] && !done["dropping"][version] {
			t.Errorf("version %d was offloaded and is gone", version)
		}
	}
	files, err := os.ReadDir(filepath.Join(dir, "disk", blocksName))
	must(t, err)
	if st := s.Stat(); st.Corrupt > 0 || st.Blocks != len(files) {
		t.Errorf("%d files of %+v", len(files), st)
	}
	for version := range done["saved"] {
		loaded := Key{"loaded", version, 0}
		_, err := s.Load(filepath.Join(dir, "saved"), Key{"a", version, 0}, loaded)
		must(t, err)
		wantState(t, s, loaded, contentOf(version)...)
	}
	must(t, s.Close())
}

func FuzzManifest(f *testing.F) {
	x := &tensor{Tensor: Tensor{Name: "w", DType: "uint8", Shape: []uint64{3}}, hashes: make([]hash, 1)}
	f.Add(encodeManifest(Key{"a", 1, 0}, []*tensor{x}))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, tensors, err := decodeManifest(data)
		if err != nil {
			return
		}
		if again, _, err := decodeManifest(encodeManifest(k, tensors)); err != nil || again != k {
			t.Fatalf("%v, %v", again, err)
		}
	})
}
