package runtime

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// launched starts a program by the launcher. It returns what that writes, or why it was not executed.
func launched(t *testing.T, l launcher, path string, argv ...string) (text string, err error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	u, err := l.launch()
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	pid, err := u.fork(&command{path: path, argv: argv, attr: &syscall.ProcAttr{
		Env: []string{"SAID=word"}, Files: []uintptr{0, w.Fd(), 2},
	}})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	u.write.Close()
	return string(b), u.report()
}

// A program has the arguments and the environment that it should, and no descriptor of the launcher. If it
// cannot be executed, the error is that of the kernel.
func TestTheLauncherExecutesPrograms(t *testing.T) {
	l := newLauncher()
	if l == "" {
		t.Skip("this machine cannot execute the launcher")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no program to run: ", err)
	}
	text, err := launched(t, l, sh, "shell", "-c", `echo "$0 $1 $SAID"; test -e /proc/self/fd/3 || echo closed`, "a", "b c")
	if err != nil || text != "a b c word\nclosed\n" {
		t.Errorf("it said %q (%v)", text, err)
	}
	for path, want := range map[string]error{"/does/not/exist": syscall.ENOENT, "/": syscall.EACCES, "/dev/null": syscall.EACCES} {
		if _, err := launched(t, l, path, "name"); err != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// Attempts that execute the launcher can open its file. None can change what the others execute.
func TestTheLauncherCannotBeChanged(t *testing.T) {
	fd, err := launchProgram()
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, []byte{0}, 200); err != unix.EPERM {
		t.Errorf("write: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); err != unix.EPERM {
		t.Errorf("truncate: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o777 != 0o555 {
		t.Errorf("mode %o, %v: who opens it to write holds up all executions", st.Mode&0o777, err)
	}
}

// heldLaunch is a launch with a pipe that somebody else has too, so that no end of file comes.
func heldLaunch(t *testing.T) *launch {
	t.Helper()
	u, err := launcher("/none").launch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.close)
	held, err := unix.Dup(int(u.write.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(held) })
	return u
}

// TestATakenReportHoldsUpNoEnd: another process has the pipe of the launcher.
func TestATakenReportHoldsUpNoEnd(t *testing.T) {
	u := heldLaunch(t)
	exited := make(chan childExit, 1)
	exited <- childExit{lost: true}
	c := child{exited: exited}
	if err := u.executed(&c, nil, nil); err != nil {
		t.Error(err)
	}
	if len(c.exited) != 1 || !(<-c.exited).lost {
		t.Error("the end is gone")
	}
}

// TestALauncherThatHangsIsKilled: an order to kill an attempt does not wait until its program is executed.
func TestALauncherThatHangsIsKilled(t *testing.T) {
	u := heldLaunch(t)
	exited, killed := make(chan childExit, 1), make(chan struct{})
	c := child{exited: exited}
	close(killed)
	if err := u.executed(&c, killed, func() { exited <- childExit{lost: true} }); err != nil || len(c.exited) != 1 {
		t.Errorf("%d ends, %v", len(c.exited), err)
	}
}
