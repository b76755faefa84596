package kvfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GuardCommand is the command of a program that calls Guard with its argument and its standard input
// and output.
const GuardCommand = "kv-files-guard"

const (
	guardReady = "ready"
	// guardStartMax is how long a guard may take to begin.
	guardStartMax = 10 * time.Second
)

// Guard takes the mount at a path away when the input ends, which it does when the process that
// serves the files has died. Engines then find an empty directory instead of errors, which the back
// end of HiCache does not always take for misses. The mount is held, so that no later one is taken
// away in its stead.
func Guard(path string, in io.Reader, out io.Writer) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("hold %s: %w", path, err)
	}
	if _, err := fmt.Fprintln(out, guardReady); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	err = unmount(fmt.Sprintf("/proc/self/fd/%d", fd))
	if errors.Is(err, unix.EINVAL) { // it was unmounted before
		return nil
	}
	return err
}

// guard is a process that runs Guard.
type guard struct {
	cmd *exec.Cmd
	in  io.Closer
}

func startGuard(program, path string) (*guard, error) {
	cmd := exec.Command(program, GuardCommand, path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends a group of processes is to leave it
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	g := &guard{cmd, in}
	late := time.AfterFunc(guardStartMax, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != guardReady+"\n" {
		_ = cmd.Process.Kill()
		g.end()
		return nil, fmt.Errorf("the guard did not begin: %w", errors.Join(err, fmt.Errorf("it said %q", line)))
	}
	return g, nil
}

// end has the guard unmount what is still there, and waits for it.
func (g *guard) end() {
	if g == nil {
		return
	}
	_ = g.in.Close()
	_ = g.cmd.Wait()
}
