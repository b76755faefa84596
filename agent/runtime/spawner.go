package runtime

import (
	"fmt"
	"os"
	"os/signal"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner forks on one thread that never ends: children ask to be killed with
// the thread that forked them, and v1 cgroups and CPU affinity are inherited
// from it. Go forks one process at a time in any case.
type spawner struct {
	work     chan func()
	launcher launcher

	mu      sync.Mutex
	waiting map[int]chan<- childExit
	// early are the exits that were reaped during a fork, whose process is not known yet; nil: none
	// is under way.
	early map[int]childExit

	oom oomScore
}

// childExit is what wait4 says of a main process.
type childExit struct {
	status syscall.WaitStatus
	rusage syscall.Rusage
	at     time.Time
	lost   bool // nobody knows: its sandbox has ended
}

// newSpawner also makes this process the parent of whatever loses its own below
// it. noNewPrivs keeps set-user-ID programs from giving attempts more rights.
func newSpawner(noNewPrivs bool) (*spawner, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	s := &spawner{work: make(chan func()), launcher: newLauncher(), waiting: make(map[int]chan<- childExit), oom: ownOOMScore()}
	ready := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // never unlocked
		var err error
		if err = unix.Unshare(unix.CLONE_FS); os.Geteuid() != 0 {
			err = nil // it is needed to enter namespaces only
		}
		if noNewPrivs && err == nil {
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}
		ready <- err
		for f := range s.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("prepare the thread that forks: %w", err)
	}
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, syscall.SIGCHLD)
	go func() {
		for range sigchld {
			s.reap()
		}
	}()
	return s, nil
}

// command is a process to start, ready but for the fork.
type command struct {
	path string
	argv []string
	attr *syscall.ProcAttr
	// enter and leave move the thread that forks into namespaces and back.
	enter func(path string) error
	leave func() error
}

// child is a process that was started.
type child struct {
	pid    int
	at     time.Time
	exited <-chan childExit // one value
}

// start forks inside the box, unless given is closed before its turn comes, and waits until the program is
// executed.
func (s *spawner) start(c *command, b box, given <-chan struct{}) (child, error) {
	u, err := s.launcher.launch()
	if err != nil {
		return child{}, err
	}
	defer u.close()
	var (
		out  child
		done = make(chan struct{})
	)
	select {
	case s.work <- func() {
		defer close(done)
		out, err = s.fork(c, b, u)
	}:
	case <-given:
		return child{}, errKilled
	}
	if <-done; err != nil {
		return child{}, err
	}
	kill := func() { _ = s.signalGroup(out.pid, syscall.SIGKILL) }
	if err := u.executed(&out, given, kill); err != nil {
		kill() // the launcher ends by itself
		<-out.exited
		return child{}, err
	}
	return out, nil
}

// fork runs on the spawner's thread.
func (s *spawner) fork(c *command, b box, u *launch) (child, error) {
	defer func() {
		// A thread that stays in a box would be killed or frozen with it, and
		// with the thread all attempts. Ending here is the same, but known.
		if err := b.leave(); err != nil {
			fmt.Fprintln(os.Stderr, "supervisor:", err)
			os.Exit(1)
		}
	}()
	if err := b.enter(); err != nil {
		return child{}, err
	}
	defer s.oom.raise()()
	at := time.Now()
	pid, err := c.fork(u, s.keepEarly)
	if err == nil {
		b.started(pid)
	}
	exited := make(chan childExit, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ended := s.early[pid]
	s.early = nil
	if err != nil {
		return child{}, err
	}
	// One that had the same number just before is another's.
	if ended && syscall.Kill(pid, 0) == syscall.ESRCH {
		exited <- e
	} else {
		s.waiting[pid] = exited
	}
	return child{pid: pid, at: at, exited: exited}, nil
}

// keepEarly begins to keep exits for the fork that follows: others are reaped meanwhile, as without the
// launcher a program may take long to be executed.
func (s *spawner) keepEarly() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = make(map[int]childExit)
}

// fork runs in the namespaces of the attempt and nowhere else: what this process reads
// of itself in /proc is not there. begins is called just before.
func (c *command) fork(u *launch, begins func()) (pid int, err error) {
	defer func() {
		if err := c.leave(); err != nil { // as with a box
			fmt.Fprintln(os.Stderr, "supervisor:", err)
			os.Exit(1)
		}
	}()
	if err := c.enter(c.path); err != nil {
		return 0, err
	}
	begins()
	return u.fork(c)
}

// signalGroup sends a signal to the process group that a main process leads, unless the process
// has been reaped: then its number may be another's.
func (s *spawner) signalGroup(pid int, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[pid] == nil {
		return syscall.ESRCH
	}
	return syscall.Kill(-pid, sig)
}

// reap collects every dead child: main processes, and orphans that nobody else
// waits for.
func (s *spawner) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var e childExit
		pid, err := syscall.Wait4(-1, &e.status, syscall.WNOHANG, &e.rusage)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		e.at = time.Now()
		if exited, ok := s.waiting[pid]; ok {
			delete(s.waiting, pid)
			exited <- e
		} else if s.early != nil {
			s.early[pid] = e
		}
	}
}
