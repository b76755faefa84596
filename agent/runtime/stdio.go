package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stdio is where the standard input, output and error of an attempt lead. This is the one place
// that makes them, whatever starts the attempt: nothing and files, a pipe and files, or a
// terminal.
type stdio struct {
	// child are the attempt's. Those of own are for nothing else.
	child [3]*os.File
	own   []*os.File
	// far is where input is written: the end of a pipe or a terminal. nil: there is none.
	far      *os.File
	terminal bool
	// pumped is closed when all that was written to the terminal is in the file. nil: no terminal.
	pumped chan struct{}
}

// newStdio makes what a spec asks for. The files belong to the attempt's user, so that a command
// can open /dev/stdin.
func newStdio(spec *Spec, devNull *os.File, out *outputFiles, owner *userID) (*stdio, error) {
	s := &stdio{child: [3]*os.File{devNull, out.file[0], out.file[1]}}
	var err error
	switch {
	case spec.TTY != nil:
		err = s.openTerminal(*spec.TTY, out.file[0])
	case spec.Stdin:
		err = s.openPipe()
	}
	if err == nil && len(s.own) > 0 && owner != nil {
		err = s.own[0].Chown(int(owner.uid), int(owner.gid))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stdio) openPipe() error {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make the pipe of standard input: %w", err)
	}
	near := os.NewFile(uintptr(fd[0]), "standard input")
	s.child[0], s.own = near, []*os.File{near}
	// The command's end blocks, as programs expect. Ours does not.
	if err := unix.SetNonblock(fd[1], true); err != nil {
		return errors.Join(err, unix.Close(fd[1]))
	}
	s.far = os.NewFile(uintptr(fd[1]), "standard input")
	return nil
}

func (s *stdio) openTerminal(size Terminal, out *os.File) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("make a terminal: open /dev/ptmx: %w", err)
	}
	s.far, s.terminal = os.NewFile(uintptr(fd), "terminal"), true
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock a terminal: %w", err)
	}
	// The other side, whatever is mounted at /dev/pts.
	near, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("open a terminal: %w", errno)
	}
	file := os.NewFile(near, "terminal")
	s.child, s.own = [3]*os.File{file, file, file}, []*os.File{file}
	if err := file.Chmod(0o600); err != nil {
		return fmt.Errorf("keep a terminal to its user: %w", err)
	}
	if err := s.resize(size); err != nil {
		return err
	}
	s.pumped = make(chan struct{})
	go func() {
		defer close(s.pumped)
		pump(out, s.far)
	}()
	return nil
}

// pump copies what is written to a terminal until its other side is closed. A file that takes
// no more does not stop the command.
func pump(to io.Writer, from io.Reader) {
	buf := make([]byte, chunkBytes)
	for {
		n, err := from.Read(buf)
		_, _ = to.Write(buf[:n])
		if err != nil { // EIO: nothing has it open any more
			return
		}
	}
}

// resize changes the size of the terminal.
func (s *stdio) resize(size Terminal) error {
	err := s.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	})
	if err != nil {
		return fmt.Errorf("change the size of a terminal: %w", err)
	}
	return nil
}

// interrupts are the signals that terminals send by themselves.
var interrupts = []syscall.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP}

// interrupt sends one of these to what the terminal has in the foreground.
func (s *stdio) interrupt(sig syscall.Signal) error {
	return s.control(func(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCSIG, int(sig)) })
}

func (s *stdio) control(do func(fd int) error) error {
	raw, err := s.far.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

// files are the descriptors 0, 1 and 2 of the attempt.
func (s *stdio) files() []uintptr {
	return []uintptr{s.child[0].Fd(), s.child[1].Fd(), s.child[2].Fd()}
}

// attr makes the terminal the controlling one of the attempt's session.
func (s *stdio) attr(sys *syscall.SysProcAttr) {
	if s.terminal {
		sys.Setctty, sys.Ctty = true, 0
	}
}

// forked closes the attempt's end of the pipe, so that writing fails once the command has closed
// its own. The terminal's stays open: its commands may close it and open it again.
func (s *stdio) forked() {
	if !s.terminal {
		s.closeOwn()
	}
}

func (s *stdio) closeOwn() {
	for _, f := range s.own {
		f.Close()
	}
	s.own = nil
}

// drainMax bounds how long the end of an attempt waits for what is left in its terminal.
const drainMax = 5 * time.Second

// drain is called once nothing of the attempt is alive.
func (s *stdio) drain() {
	s.closeOwn()
	if s.pumped == nil {
		return
	}
	select {
	case <-s.pumped:
	case <-time.After(drainMax):
	}
}

// close gives up all that was made. Writers that wait are told that there is nothing to write to.
func (s *stdio) close() {
	s.closeOwn()
	if s.far != nil {
		s.far.Close()
	}
	if s.pumped != nil {
		<-s.pumped
	}
}
