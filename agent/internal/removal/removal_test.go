package removal

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// treeEnv makes this test binary a process that removes the tree that is named there.
const treeEnv = "ROTA_TEST_TREE"

// filesMax is how many files that process may have open.
const filesMax = openMax + 32

// nobody is a user who has no rights to anything but what a test gives it.
const nobody = 65534

func TestMain(m *testing.M) {
	if tree := os.Getenv(treeEnv); tree != "" {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: filesMax, Max: filesMax}); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		if err := All(tree); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestReadOnlyDirectories: an owner without root removes what it has made read-only, and nothing that
// a link leads to.
func TestReadOnlyDirectories(t *testing.T) {
	base, err := os.MkdirTemp("", "removal")
	if err != nil {
		t.Fatal(err)
	}
	tree, outside := filepath.Join(base, "tree"), filepath.Join(base, "outside")
	t.Cleanup(func() {
		_ = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
		_ = os.RemoveAll(base)
	})
	for _, dir := range []string{filepath.Join(tree, "pkg/mod/a@v1/sub"), filepath.Join(tree, "closed/in"), outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(tree, "pkg", "link")); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{
		"tree/pkg/mod/a@v1/sub": 0o555, "tree/pkg/mod/a@v1": 0o555, "tree/pkg": 0o555, "tree/closed": 0, "outside": 0o555,
	} {
		if err := os.Chmod(filepath.Join(base, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), treeEnv+"="+tree)
	if os.Geteuid() == 0 {
		err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		})
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Mkdir(filepath.Join(tree, "of-root"), 0); err != nil { // it cannot be opened, and is empty
			t.Fatal(err)
		}
		if self, err = copied(self, base); err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Dir = self, base
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
	if st, err := os.Stat(outside); err != nil || st.Mode().Perm() != 0o555 {
		t.Errorf("what a link leads to has changed: %v, %v", st, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Errorf("what a link leads to has lost a file: %v", err)
	}
}

// TestDeepTrees: a process removes trees that are deeper than it may have files open.
func TestDeepTrees(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	for at := tree; strings.Count(at, "/") < 2*filesMax; at += "/d" {
		if err := os.MkdirAll(filepath.Join(at, "beside", "it"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), treeEnv+"="+tree)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
}

// TestTheWayUpOfADirectoryThatWasMoved: it leads elsewhere, where nothing is removed.
func TestTheWayUpOfADirectoryThatWasMoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "above", "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	above, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(above)
	w := &walk{ctx: t.Context()}
	defer w.close()
	if err := w.enter(above, "above"); err != nil {
		t.Fatal(err)
	}
	l := w.levels[0]
	if err := w.enter(l.fd, "below"); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(l.fd)
	l.fd = -1
	if err := os.Rename(filepath.Join(dir, "above", "below"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := w.leave(above); !errors.Is(err, errMoved) {
		t.Errorf("leave: %v, want %v", err, errMoved)
	}
	if _, err := os.Lstat(filepath.Join(dir, "moved")); err != nil {
		t.Error(err)
	}
}

// TestADirectoryThatAnotherRemoves: what is gone is no error, whoever removed it.
func TestADirectoryThatAnotherRemoves(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "top", "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	above, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(above)
	w := &walk{ctx: t.Context()}
	defer w.close()
	if err := w.enter(above, "top"); err != nil {
		t.Fatal(err)
	}
	l := w.levels[0]
	if err := w.list(l); err != nil || len(l.dirs) != 1 {
		t.Fatalf("in it: %v, %v", l.dirs, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "top")); err != nil {
		t.Fatal(err)
	}
	w.note(errMoved) // an error of something that is gone now
	if err := errors.Join(w.enter(l.fd, "below"), w.list(l)); err != nil || l.changed {
		t.Errorf("changed: %v, %v", l.changed, err)
	}
	if err := errors.Join(w.leave(above), w.err); err != nil {
		t.Error(err)
	}
}

// TestADirectoryIntoWhichOthersWrite: its removal comes to an end.
func TestADirectoryIntoWhichOthersWrite(t *testing.T) {
	dir := t.TempDir()
	above, err := unix.Open(filepath.Dir(dir), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(above)
	w := &walk{ctx: t.Context()}
	defer w.close()
	if err := w.enter(above, filepath.Base(dir)); err != nil {
		t.Fatal(err)
	}
	l, lists := w.levels[0], 0
	for ; l.again() && lists < 100; lists++ {
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := w.list(l); err != nil {
			t.Fatal(err)
		}
	}
	if lists != 1+passesMax {
		t.Errorf("it was listed %d times", lists)
	}
}

// TestPathsWithoutAName: they are refused.
func TestPathsWithoutAName(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, path := range []string{"", ".", "..", "./", "../..", "a/..", "a/../.."} {
		if err := In(t.Context(), root, path); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("in a root, %q: %v", path, err)
		}
	}
	t.Chdir(dir)
	for _, path := range []string{"", ".", "a/.."} {
		if err := All(path); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"/", "..", "/..", "a/../.."} { // All itself would remove too much
		if _, err := clean(path); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestManyDirectories: more than are known at once.
func TestManyDirectories(t *testing.T) {
	tree := filepath.Join(t.TempDir(), "tree")
	for i := range batchMax + 300 {
		if err := os.MkdirAll(filepath.Join(tree, strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := All(tree + "/"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
}

// TestIn: what is in a root goes, and what is outside stays.
func TestIn(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"root/a/b/c", "outside/x"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"root/a/out", "root/out"} {
		if err := os.Symlink(filepath.Join(dir, "outside"), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, c := range []struct {
		path string
		fail bool
	}{{"a/b", false}, {"a", false}, {"missing", false}, {"missing/below", false}, {"out/x", true}, {"out", false}} {
		if err := In(t.Context(), root, c.path); (err != nil) != c.fail {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "root"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "outside", "x")); err != nil {
		t.Errorf("what is outside: %v", err)
	}
}

// copied copies a program to where anybody may run it.
func copied(program, dir string) (string, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "program")
	return to, os.WriteFile(to, text, 0o755)
}
