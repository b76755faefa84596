package pid1

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/runtime/container/initcall"
)

// TestAnEndIsNotReapedBeforeItIsWaitedFor: while a process is being forked, only processes that are
// known are reaped, and signals do not wait.
func TestAnEndIsNotReapedBeforeItIsWaitedFor(t *testing.T) {
	s := &starter{waiting: map[int]chan<- initcall.Ended{}}
	run := func() int {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Skip("no program to run: ", err)
		}
		var dead unix.Siginfo
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &dead, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	known, unknown := run(), run()
	exits := make(chan initcall.Ended, 2)
	s.waiting[known] = exits
	s.setForking(true)
	s.reap()
	s.signal(unknown, unix.SIGKILL)
	if len(exits) != 1 || len(s.waiting) != 0 {
		t.Fatalf("%d ends, and %d processes are waited for", len(exits), len(s.waiting))
	}
	s.waiting[unknown] = exits
	s.setForking(false)
	s.reap()
	if len(exits) != 2 || len(s.waiting) != 0 {
		t.Fatalf("after the fork: %d ends, and %d processes are waited for", len(exits), len(s.waiting))
	}
}

// TestCommandsStartAndEnd: ends are told also of commands that are over before their fork is.
func TestCommandsStartAndEnd(t *testing.T) {
	s := newStarter("")
	defer s.stop() // it would reap the children of other tests
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := null.Fd()
	for range 20 {
		path, err := exec.LookPath("true")
		if err != nil {
			t.Skip("no program to run: ", err)
		}
		p := &prepared{path: path}
		p.attr.Files = []uintptr{fd, fd, fd}
		_, exited, err := s.fork(&initcall.Call{Command: initcall.Command{Argv: []string{path}}}, p)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-exited:
			if e.Status.ExitStatus() != 0 {
				t.Fatalf("it ended with %d", e.Status)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("its end is not told")
		}
	}
	if _, _, err := s.fork(&initcall.Call{Command: initcall.Command{Argv: []string{"none"}}}, &prepared{path: "/does/not/exist"}); err == nil {
		t.Error("a program that is not there was started")
	}
	if s.forking || len(s.waiting) != 0 {
		t.Errorf("forking: %v, waited for: %v", s.forking, s.waiting)
	}
}

// TestAWorkingDirectoryIsGivenByDescriptor: a directory that is there is not given away.
func TestAWorkingDirectoryIsGivenByDescriptor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give directories away")
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.Mkdir("there", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"there": 0, "new": 65534} {
		if err := makeFor(root, name, account{uid: 65534, gid: 65534}); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil || st.Uid != want {
			t.Errorf("%s belongs to %d, want %d: %v", name, st.Uid, want, err)
		}
	}
}

// TestCommandsThatStartAtOnceShareANewDirectory: none takes what another makes for exchanged.
func TestCommandsThatStartAtOnceShareANewDirectory(t *testing.T) {
	user := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	if os.Geteuid() == 0 {
		user = account{uid: 65534, gid: 65534}
	}
	for range 50 {
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		var starts sync.WaitGroup
		for range 8 {
			starts.Go(func() {
				if err := makeAllFor(root, "a/b/c", user); err != nil {
					t.Error(err)
				}
			})
		}
		starts.Wait()
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "a/b/c"), &st); err != nil || st.Uid != user.uid {
			t.Fatalf("it belongs to %d: %v", st.Uid, err)
		}
	}
}
