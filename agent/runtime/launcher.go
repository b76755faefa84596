package runtime

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// launcher is the path of launchProgram, or empty if this machine cannot execute it.
//
// Go forks one process at a time, and each fork lasts until a program is executed. That may take long:
// the disk of the program may hang, and a command that has a write lease of the file of a program holds
// up who executes it for 45 s. So what is forked executes the launcher, which is in memory, and the
// launcher executes the program of the attempt. Nobody but the attempt waits for that.
type launcher string

const (
	// reportFD is where the launcher says why it cannot execute a program.
	reportFD = 3
	// reportMax is how long a report is waited for after its process has ended. There is one at once,
	// unless another process has taken the pipe.
	reportMax = time.Second
)

// launcherFile opens the file of the launcher. Tests put what fails in its place, as on machines without one.
var launcherFile = launchProgram

// newLauncher tries whether the launcher works.
func newLauncher() launcher {
	program, err := launcherFile()
	if err != nil {
		return ""
	}
	defer unix.Close(program)
	fd, err := unix.FcntlInt(uintptr(program), unix.F_DUPFD_CLOEXEC, reportFD+1) // what is forked has others below
	if err != nil {
		return ""
	}
	l := launcher(fmt.Sprintf("/proc/self/fd/%d", fd))
	if l.try() != syscall.EACCES {
		unix.Close(fd)
		return ""
	}
	return l
}

// try returns the error of executing a directory.
func (l launcher) try() error {
	u, err := l.launch()
	if err != nil {
		return err
	}
	defer u.close()
	pid, err := u.fork(&command{path: "/", argv: []string{"/"}, attr: &syscall.ProcAttr{Files: []uintptr{0, 1, 2}}})
	if err != nil {
		return err
	}
	u.write.Close()
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	_ = u.read.SetReadDeadline(time.Now().Add(reportMax))
	return u.report()
}

// launch is one use of the launcher; nil: a program is executed without it.
type launch struct {
	launcher    launcher
	read, write *os.File // of reports
}

func (l launcher) launch() (*launch, error) {
	if l == "" {
		return nil, nil
	}
	u := &launch{launcher: l}
	var err error
	u.read, u.write, err = os.Pipe()
	return u, err
}

func (u *launch) close() {
	if u != nil {
		u.read.Close()
		u.write.Close()
	}
}

// fork forks a command. With the launcher, its program may not be executed yet.
func (u *launch) fork(c *command) (pid int, err error) {
	if u == nil {
		return syscall.ForkExec(c.path, c.argv, c.attr)
	}
	attr := *c.attr
	attr.Files = append(slices.Clip(attr.Files), u.write.Fd()) // as reportFD
	return syscall.ForkExec(string(u.launcher), slices.Concat([]string{c.path}, c.argv), &attr)
}

// executed waits until the program of a process is executed, or the process has ended. The error says
// why the program cannot be executed.
func (u *launch) executed(c *child, killed <-chan struct{}, kill func()) error {
	if u == nil {
		return nil
	}
	u.write.Close()
	reported := make(chan error, 1)
	go func() { reported <- u.report() }()
	for {
		select {
		case err := <-reported:
			return err
		case <-killed:
			kill()
			killed = nil
		case e := <-c.exited:
			exited := make(chan childExit, 1)
			exited <- e
			c.exited = exited
			_ = u.read.SetReadDeadline(time.Now().Add(reportMax))
			return <-reported
		}
	}
}

// report returns what the launcher says; nil: it has executed its program, or was killed before.
func (u *launch) report() error {
	var b [8]byte
	if _, err := io.ReadFull(u.read, b[:]); err != nil {
		return nil //nolint:nilerr // the end of the file is the report
	}
	return syscall.Errno(binary.NativeEndian.Uint64(b[:]))
}
