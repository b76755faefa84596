package runtime

import (
	"fmt"
	"os"
	goruntime "runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// cellsReady is how many cells are made ahead, so that no attempt waits for one.
const cellsReady = 4

// cellNamespaces are what an attempt has to itself.
const cellNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC

// namespaceFiles are where this process has its own.
var namespaceFiles = []struct {
	path string
	kind int
}{
	{"/proc/self/ns/pid", unix.CLONE_NEWPID}, {"/proc/self/ns/ipc", unix.CLONE_NEWIPC}, {"/proc/self/ns/mnt", unix.CLONE_NEWNS},
}

// cellDeathTries, of a tenth of a second each, is how long a cell may take to end. A
// process that hangs in the kernel can take longer, which does no harm.
const cellDeathTries = 10

// cell is PID, mount and IPC namespaces of one attempt. Its first process is
// initProgram, a child of this process; killing that one kills all inside.
type cell struct {
	first int // pidfd of the first process
}

// cells makes cells ahead.
type cells struct {
	home    []int // descriptors of this process's own, in the order of namespaceFiles
	program string
	devNull *os.File
	cells   ahead[*cell]
	done    sync.WaitGroup
}

// newCells returns an error in words if this machine has no cells.
func newCells(devNull *os.File) (*cells, error) {
	program, err := initProgram()
	if err != nil {
		return nil, err
	}
	c := &cells{program: fmt.Sprintf("/proc/self/fd/%d", program), devNull: devNull, cells: newAhead[*cell](cellsReady)}
	for _, f := range namespaceFiles {
		fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", f.path, err)
		}
		c.home = append(c.home, fd)
	}
	if err := c.probe(); err != nil {
		return nil, err
	}
	c.done.Go(c.makeAhead)
	return c, nil
}

// probe tries all that an attempt's start does, on a thread that ends with it.
func (c *cells) probe() error {
	tried := make(chan error)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread may be anywhere
		tried <- func() error {
			cell, err := c.make()
			if err != nil {
				return err
			}
			defer cell.close()
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := cell.enter(); err != nil {
				return err
			}
			tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				return fmt.Errorf("open_tree: %w", err)
			}
			unix.Close(tree)
			return c.leave()
		}()
	}()
	return <-tried
}

// makeAhead runs on one thread that never ends before the supervisor: the first
// processes are killed with the thread that forked them.
func (c *cells) makeAhead() {
	goruntime.LockOSThread()
	c.cells.fill(c.make, (*cell).close)
}

// make starts the first process and waits until it has mounted /proc.
func (c *cells) make() (*cell, error) {
	var ready [2]int
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	defer unix.Close(ready[0])
	made := &cell{first: -1}
	_, err := syscall.ForkExec(c.program, []string{"rota-init"}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{c.devNull.Fd(), uintptr(ready[1]), c.devNull.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: cellNamespaces, PidFD: &made.first},
	})
	unix.Close(ready[1])
	if err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	var b [1]byte
	if n, err := unix.Read(ready[0], b[:]); n != 1 {
		made.close()
		return nil, fmt.Errorf("make namespaces: /proc cannot be mounted (%v)", err)
	}
	return made, nil
}

// take returns a cell for one attempt, unless given is closed first.
func (c *cells) take(given <-chan struct{}) (*cell, error) { return c.cells.take(given) }

// give ends a cell that was taken, in the background.
func (c *cells) give(used *cell) { c.done.Go(used.close) }

// close ends the cells that nobody has taken, when the others have ended.
func (c *cells) close() {
	close(c.cells.quit)
	c.done.Wait()
	for len(c.cells.ready) > 0 {
		(<-c.cells.ready).close()
	}
}

// enter moves the calling thread into the namespaces; what it forks is inside.
func (c *cell) enter() error {
	if err := unix.Setns(c.first, cellNamespaces); err != nil {
		return fmt.Errorf("enter namespaces: %w", err)
	}
	return nil
}

// leave moves the calling thread back. What this process "is in" would not do: that is
// where its first thread is, which may be the calling one.
func (c *cells) leave() error {
	for i, f := range namespaceFiles {
		if err := unix.Setns(c.home[i], f.kind); err != nil {
			return fmt.Errorf("leave namespaces: %w", err)
		}
	}
	return nil
}

// kill ends every process inside, whatever it did to get away.
func (c *cell) kill() { _ = unix.PidfdSendSignal(c.first, unix.SIGKILL, nil, 0) }

// dead reports whether nothing is alive inside: the first process is the last to go.
// It waits for that, so many milliseconds at most.
func (c *cell) dead(wait int) bool {
	poll := []unix.PollFd{{Fd: int32(c.first), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, wait)
	return err == nil && n == 1
}

// close ends a cell. It waits, as the cgroup that the first process is in cannot be
// removed before.
func (c *cell) close() {
	for range cellDeathTries {
		if c.kill(); c.dead(100) {
			break
		}
	}
	unix.Close(c.first)
}
