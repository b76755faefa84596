package fileuser

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// extra is a group that only the agent is in, and nobody a user without rights.
const (
	extra  = 70123
	nobody = 65534
)

// TestGroupsOfTheAgentAreDropped: a file that a supplementary group of the agent may read is closed to
// the user, and the agent has its groups again afterwards.
func TestGroupsOfTheAgentAreDropped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take the rights of another user")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with its groups
	if err := unix.Setgroups([]int{extra}); err != nil {
		t.Skip("the groups of a thread cannot be set here: ", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, []byte("secret"), 0o640), os.Chown(file, 0, extra)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir) // the way there may be closed to the user
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, c := range []struct {
		name   string
		groups []int
		want   error
	}{{"without groups", nil, fs.ErrPermission}, {"with the group", []int{extra}, nil}} {
		err := ID{nobody, nobody, c.groups}.DoOnThread(func() error {
			_, err := root.ReadFile("file")
			return err
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if groups, err := unix.Getgroups(); err != nil || !slices.Equal(groups, []int{extra}) {
		t.Errorf("afterwards the agent has the groups %v, %v", groups, err)
	}
}

// TestWhatIsMadeIsTheUsers: a directory that the user makes needs not be given to it.
func TestWhatIsMadeIsTheUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take the rights of another user")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := (ID{User: nobody, Group: nobody}).Do(func() error { return root.Mkdir("made", 0o700) }); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "made"), &st); err != nil || st.Uid != nobody || st.Gid != nobody {
		t.Errorf("it belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "by-root"), 0o700); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
