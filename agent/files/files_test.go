package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"rota/internal/need"
)

func home(t *testing.T) (h *Home, dir string) {
	t.Helper()
	dir = t.TempDir()
	h, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileIsWrittenAndReadInParts(t *testing.T) {
	h, dir := home(t)
	size, err := h.Write("a/b/c", Write{Data: []byte("hello world"), Mode: 0o640, Parents: true})
	if err != nil || size != 11 {
		t.Fatal(size, err)
	}
	if size, err = h.Write("a/b/c", Write{Offset: 6, Data: []byte("you"), Mode: 0o777}); err != nil || size != 11 {
		t.Error(size, err)
	}
	if size, err = h.Write("a/b/c", Write{Offset: 6, Data: []byte("all"), Truncate: true}); err != nil || size != 9 {
		t.Error(size, err)
	}
	st, err := os.Stat(filepath.Join(dir, "a/b/c"))
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Error(st, err)
	}
	for _, tt := range []struct {
		offset int64
		limit  int
		want   string
	}{{0, 100, "hello all"}, {6, 2, "al"}, {9, 5, ""}, {1 << 60, 5, ""}} {
		data, size, err := h.Read("a/b/c", tt.offset, tt.limit)
		if err != nil || size != 9 || string(data) != tt.want {
			t.Errorf("%+v: %q of %d, %v", tt, data, size, err)
		}
	}
}

func TestListsAreInOrderAndInPages(t *testing.T) {
	h, dir := home(t)
	var want []string
	for i := range 25 {
		name := fmt.Sprintf("f%02d", i)
		want = append(want, name)
		must(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("x"), i), 0o600))
	}
	must(t, os.Symlink("f03", filepath.Join(dir, "link")))
	want = append(want, "link")
	var got []string
	after, more := "", true
	for more {
		var page []Info
		var err error
		if page, more, err = h.List("", after, 10); err != nil || len(page) > 10 || len(page) == 0 {
			t.Fatal(page, err)
		}
		for _, f := range page {
			got = append(got, f.Name())
		}
		after = page[len(page)-1].Name()
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v", got)
	}
	if i, err := h.Stat("link"); err != nil || i.Target != "f03" || i.Mode().Type() != fs.ModeSymlink {
		t.Errorf("%+v, %v", i, err)
	}
	if _, _, err := h.List("f01", "", 10); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file is listed: %v", err)
	}
}

func TestMovesAndRemovals(t *testing.T) {
	h, dir := home(t)
	must(t, h.MakeDirectory("d/e"))
	must(t, h.MakeDirectory("d/e"))
	for _, name := range []string{"d/e/x", "y"} {
		_, err := h.Write(name, Write{Data: []byte(name), Mode: 0o600})
		must(t, err)
	}
	if err := h.MakeDirectory("y"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory in place of a file: %v", err)
	}
	must(t, h.Move("y", "d/e/x"))
	if b, _ := os.ReadFile(filepath.Join(dir, "d/e/x")); string(b) != "y" {
		t.Errorf("x is %q", b)
	}
	if err := h.Remove(t.Context(), "d", false); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("a directory that is not empty: %v", err)
	}
	must(t, h.Remove(t.Context(), "d", true))
	for _, recursive := range []bool{false, true} {
		if err := h.Remove(t.Context(), "d", recursive); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what is gone: %v", err)
		}
	}
	for _, path := range []string{"", ".", "a/.."} {
		if err := h.Remove(t.Context(), path, true); !errors.Is(err, ErrPath) {
			t.Errorf("the directory itself, as %q: %v", path, err)
		}
		if err := h.Move(path, "z"); !errors.Is(err, ErrPath) {
			t.Errorf("the directory itself, as %q: %v", path, err)
		}
	}
}

// Nothing leads out of the directory: no path, and no link that a command has put there.
func TestNothingLeadsOutOfTheDirectory(t *testing.T) {
	above := t.TempDir()
	dir, secret := filepath.Join(above, "home"), filepath.Join(above, "secret")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for name, target := range map[string]string{"up": "..", "file": "../secret", "absolute": secret, "root": "/"} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	h, err := Open(dir)
	must(t, err)
	defer h.Close()
	for _, path := range []string{"../secret", "/etc/passwd", "up/secret", "file", "absolute", "root/etc/passwd", "a/../../secret", "x\x00"} {
		data, _, err := h.Read(path, 0, 100)
		if err == nil || len(data) > 0 {
			t.Errorf("read %q: %q, %v", path, data, err)
		}
		if _, err := h.Write(path, Write{Data: []byte("forged"), Truncate: true, Mode: 0o600, Parents: true}); err == nil {
			t.Errorf("wrote %q", path)
		}
	}
	for _, path := range []string{"up/new", "../new", "root/tmp/rota-new"} {
		if h.MakeDirectory(path) == nil || h.Move("file", path) == nil || h.Remove(t.Context(), path, true) == nil {
			t.Errorf("made, moved or removed %q", path)
		}
	}
	if _, _, err := h.List("up", "", 10); err == nil {
		t.Error("listed what is above")
	}
	must(t, h.Remove(t.Context(), "up", true)) // the link, not what it leads to
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the secret is %q, %v", b, err)
	}
}

// Opening a pipe would wait for its other end.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	h, dir := home(t)
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, h.MakeDirectory("dir"))
	for path, want := range map[string]error{"pipe": ErrNotRegular, "dir": syscall.EISDIR} {
		if _, _, err := h.Read(path, 0, 10); !errors.Is(err, want) {
			t.Errorf("read %s: %v", path, err)
		}
		if _, err := h.Write(path, Write{Data: []byte("x"), Mode: 0o600}); !errors.Is(err, want) {
			t.Errorf("write %s: %v", path, err)
		}
	}
}

// All is done with the rights of the user of the directory. A command may have linked to a file
// of somebody else there.
func TestTheRightsAreThoseOfTheUser(t *testing.T) {
	need.Root(t)
	above := t.TempDir()
	must(t, os.Chmod(filepath.Dir(above), 0o755))
	must(t, os.Chmod(above, 0o755))
	dir := filepath.Join(above, "home")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chown(dir, 4242, 4243))
	must(t, os.WriteFile(filepath.Join(above, "secret"), []byte("secret"), 0o600))
	must(t, os.Link(filepath.Join(above, "secret"), filepath.Join(dir, "linked")))
	h, err := Open(dir)
	must(t, err)
	defer h.Close()
	if data, _, err := h.Read("linked", 0, 100); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("read %q, %v", data, err)
	}
	if _, err := h.Write("linked", Write{Data: []byte("forged"), Mode: 0o600}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("write: %v", err)
	}
	_, err = h.Write("sub/mine", Write{Data: []byte("x"), Mode: 0o666, Parents: true})
	must(t, err)
	for _, name := range []string{"sub", "sub/mine"} {
		st, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 4242 || sys.Gid != 4243 {
			t.Errorf("%s belongs to %d:%d", name, sys.Uid, sys.Gid)
		}
	}
	// The agent has its own rights again, on every thread.
	for range 50 {
		must(t, os.WriteFile(filepath.Join(above, "secret"), []byte("still mine"), 0o600))
	}
}
