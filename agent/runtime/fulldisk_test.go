package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/need"
)

// smallDisk gives a supervisor a file system of its own.
func smallDisk(t *testing.T, o runtime.Options, mount string) runtime.Options {
	t.Helper()
	need.Root(t)
	o.Dir = filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", o.Dir, "tmpfs", 0, "mode=755,"+mount); err != nil {
		t.Skipf("this machine mounts no tmpfs: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(o.Dir, syscall.MNT_DETACH) })
	return o
}

// isFull says whether a file system has no room, or can have no other file.
func isFull(t *testing.T, dir string) bool {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Bavail == 0 || st.Ffree == 0
}

// What an attempt has filled the disk with is removed by the supervisor that comes after the one that died, and
// that one can start before.
func TestASupervisorStartsOnADiskThatAnAttemptHasFilled(t *testing.T) {
	for _, fill := range []struct{ name, mount, script string }{
		{"bytes", "size=8m", "cat /dev/zero > fill; sleep 1000"},
		{"files", "size=64m,nr_inodes=300", "i=0; while (: > file$i) 2> /dev/null; do i=$((i+1)); done; sleep 1000"},
	} {
		t.Run(fill.name, func(t *testing.T) {
			o := smallDisk(t, isolated(t, ""), fill.mount)
			c := dial(t, o)
			start(t, c, shell(key(1), fill.script))
			waitFor(t, "a full disk", func() bool { return isFull(t, o.Dir) })
			kill(t, c.Describe().PID, syscall.SIGKILL)
			waitLost(t, c)
			c = dial(t, o)
			if e := nextExit(t, c); e.Key != key(1) || e.Reason != plan.ReasonSupervisorLost {
				t.Errorf("the lost one: %+v", e)
			}
			if lacks(c, "uid") {
				t.Errorf("after a start on a full disk attempts share a user: %q", c.Describe().NotEnforced)
			}
			waitFor(t, "room on the disk", func() bool { return !isFull(t, o.Dir) && !exists(runtime.WorkDir(o.Dir, key(1))) })
			if e := runOne(t, c, shell(key(2), "exit 3")); e.ExitCode != 3 {
				t.Errorf("with room again: %+v", e)
			}
		})
	}
}

// A disk that something else has filled, and that stays full, keeps no supervisor from starting, and none from saying
// what became of the attempts of those before it.
func TestSupervisorsStartOnADiskThatStaysFull(t *testing.T) {
	for _, fill := range []struct{ name, mount string }{{"bytes", "size=8m"}, {"files", "size=64m,nr_inodes=300"}} {
		t.Run(fill.name, func(t *testing.T) {
			o := smallDisk(t, isolated(t, ""), fill.mount)
			c := dial(t, o)
			start(t, c, shell(key(1), "echo before; sleep 1000"))
			waitFor(t, "its output", func() bool {
				b, _ := os.ReadFile(runtime.OutputPath(o.Dir, key(1), runtime.Stdout))
				return string(b) == "before\n"
			})
			other := fillDisk(t, o.Dir)
			for range 3 {
				kill(t, c.Describe().PID, syscall.SIGKILL)
				waitLost(t, c)
				fillMore(t, other) // what was freed
				c = dial(t, o)
				if e := nextExit(t, c); e.Key != key(1) || e.Reason != plan.ReasonSupervisorLost || string(e.Stdout) != "before\n" {
					t.Errorf("the lost one: %+v", e)
				}
				if lacks(c, "uid") {
					t.Errorf("attempts share a user: %q", c.Describe().NotEnforced)
				}
			}
			if err := c.Forget(t.Context(), []plan.Key{key(1)}); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(other); err != nil {
				t.Fatal(err)
			}
			if e := runOne(t, c, shell(key(2), "exit 3")); e.ExitCode != 3 {
				t.Errorf("with room again: %+v", e)
			}
			kill(t, c.Describe().PID, syscall.SIGKILL)
			waitLost(t, c)
			if e := nextExit(t, dial(t, o)); e.Key != key(2) || e.ExitCode != 3 {
				t.Errorf("an end after that: %+v", e)
			}
		})
	}
}

// fillDisk takes all room that a file system has, with files in a folder that it returns.
func fillDisk(t *testing.T, disk string) (dir string) {
	t.Helper()
	dir = filepath.Join(disk, "other")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fillMore(t, dir)
	if !isFull(t, disk) {
		t.Fatal("the disk has room")
	}
	return dir
}

// fillMore takes what room there is.
func fillMore(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Files <= 300 {
		for n := 0; err == nil; n++ {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d", n)), nil, 0o600)
		}
	} else {
		for err == nil {
			_, err = f.Write(make([]byte, 4<<10))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
