package witness

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"rota/jepsen/history"
)

// Witness listens to probes.
type Witness struct {
	// Probe is the program that Build has made, for Command, and Engine the one that serves
	// models and calls those who do.
	Probe, Engine string

	path   string
	now    func() int64
	listen int // file descriptors
	poll   int
	wake   *os.File // closed to end the loop
	woken  *os.File
	done   chan struct{}

	// The loop's own: connections by file descriptor, and when the newest look
	// began that left no end unreported and has been dealt with.
	probes map[int]*probe
	looked int64

	mu         sync.Mutex
	executions []history.Execution
	servings   []history.Serving
	err        error
}

// probe is one connection.
type probe struct {
	fd   int
	text []byte // of a line that has not come to its end
	at   int    // in executions, or in servings if it is of an engine; -1 before the hello
	// engine: it is alive, or holds memory of GPUs.
	engine bool
}

// pathBytesMax is the longest path that the kernel takes for a Unix socket.
const pathBytesMax = 107

// Listen listens for probes at a Unix socket, in a folder that the users of
// commands can reach. Executions are stamped with now, the clock of the run.
func Listen(path string, now func() int64) (*Witness, error) {
	if len(path) > pathBytesMax {
		return nil, fmt.Errorf("listen for probes: the path %s is longer than the %d bytes that a socket may have: use a shorter folder", path, pathBytesMax)
	}
	w := &Witness{path: path, now: now, listen: -1, poll: -1, done: make(chan struct{}), probes: map[int]*probe{}}
	if err := w.open(); err != nil {
		w.release()
		return nil, fmt.Errorf("listen for probes at %s: %w", path, err)
	}
	go w.run()
	return w, nil
}

func (w *Witness) open() (err error) {
	if w.woken, w.wake, err = os.Pipe(); err != nil {
		return err
	}
	if w.listen, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	if err := unix.Bind(w.listen, &unix.SockaddrUnix{Name: w.path}); err != nil {
		return err
	}
	// Commands may run as another user than the agent.
	if err := os.Chmod(w.path, 0o777); err != nil {
		return err
	}
	if err := unix.Listen(w.listen, unix.SOMAXCONN); err != nil {
		return err
	}
	if w.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	return errors.Join(w.follow(w.listen), w.follow(int(w.woken.Fd())))
}

// follow has the loop look at a file descriptor when something comes.
func (w *Witness) follow(fd int) error {
	return unix.EpollCtl(w.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(fd)})
}

// Executions returns all executions so far, in the order of their starts. Those
// that are alive have no end.
func (w *Witness) Executions() []history.Execution {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.executions)
	for i := range all {
		all[i].Seen = slices.Clone(all[i].Seen)
	}
	return all
}

// Alive returns the executions that are alive.
func (w *Witness) Alive() (alive []history.Execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.executions {
		if e.End == 0 {
			alive = append(alive, e)
		}
	}
	return alive
}

// Servings returns what engines there were so far, in the order of their starts. Those that
// are alive have no end.
func (w *Witness) Servings() []history.Serving {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.servings)
}

// AliveEngines returns the servings that go on.
func (w *Witness) AliveEngines() (alive []history.Serving) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servings {
		if s.End == 0 {
			alive = append(alive, s)
		}
	}
	return alive
}

// Close stops listening. Probes that still run are let go. The error says what
// kept the witness from seeing something: its executions are then no proof.
func (w *Witness) Close() error {
	w.wake.Close()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Witness) release() {
	for fd := range w.probes {
		unix.Close(fd)
	}
	for _, fd := range []int{w.listen, w.poll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	w.wake.Close()
	w.woken.Close()
	os.Remove(w.path)
}

// blind notes what kept the witness from seeing.
func (w *Witness) blind(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}
