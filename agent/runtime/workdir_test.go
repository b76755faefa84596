package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rota/internal/need"
)

// TestWorkingDirectoriesAreMadeAsTheirUser: they belong to the user, and where the user may make nothing,
// nothing is made or given away.
func TestWorkingDirectoriesAreMadeAsTheirUser(t *testing.T) {
	need.Root(t)
	const uid = 70001
	home := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(home), 0o711), os.Lchown(home, uid, uid), os.Mkdir(filepath.Join(home, "of-root"), 0o755),
		os.Mkdir(filepath.Join(home, "passed"), 0o711), os.Mkdir(filepath.Join(home, "passed/in"), 0o755)); err != nil {
		t.Fatal(err)
	}
	o := owner{user: &userID{uid, uid}, home: home}
	for path, want := range map[string]error{"a/b": nil, "a/b/c": nil, "of-root": nil, "of-root/x": fs.ErrPermission,
		"passed/in": nil, "passed/x": fs.ErrPermission, "passed/in/x": fs.ErrPermission} {
		if err := makeBelow(home, path, o); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	for path, want := range map[string]uint32{"a": uid, "a/b": uid, "a/b/c": uid, "of-root": 0} {
		st, err := os.Lstat(filepath.Join(home, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", path, got, want)
		}
	}
}
