package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	supervisorv1 "rota/api/gen/supervisor/v1"
	"rota/internal/clock"
	"rota/internal/failpoint"
)

// Names in the supervisor's directory.
const (
	socketName   = "supervisor.sock"
	lockName     = "supervisor.lock"
	journalName  = "supervisor.journal"
	logName      = "supervisor.log"
	outputName   = "output"
	workName     = "work"
	tmpName      = "tmp"
	homesName    = "trajectories"
	coresName    = "cores"
	throttleName = "throttle"
)

// logBytesMax is the size from which a log is begun anew when a supervisor starts.
const logBytesMax = 4 << 20

// Dial connects to the supervisor of opts.Dir, and starts one if none runs. A
// supervisor that had died is cleaned up after: whatever it left running is
// killed and reported with ReasonSupervisorLost before Dial returns. A supervisor that
// does not answer within opts.Patience is killed, as it would not end a lease either.
//
// A running supervisor keeps its own options as long as it has something to
// run; without, one with other options is replaced.
func Dial(ctx context.Context, opts Options) (*Client, error) {
	var err error
	if opts.SuperviseOptions, err = opts.withDefaults(); err != nil {
		return nil, err
	}
	setDefault(&opts.Patience, DefaultPatience)
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	if opts.Executable == "" {
		opts.Executable = "/proc/self/exe"
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make supervisor directory: %w", err)
	}
	return (&dialer{opts: opts}).dial(ctx)
}

type dialer struct {
	opts   Options
	child  chan error // the end of the process started last; nil: none
	killed int        // how many were killed before they listened
}

// killedMax is how many supervisors may be killed as they start, by the kernel for
// memory or by an operator, before that is taken to have a reason.
const killedMax = 10

func (d *dialer) dial(ctx context.Context) (*Client, error) {
	const pause = 2 * time.Millisecond
	for wait := pause; ; wait = min(2*wait, 100*time.Millisecond) {
		c, err := d.connect(ctx)
		if err == nil {
			return c, nil
		}
		if !retryable(err) {
			return nil, err
		}
		if noListener(err) {
			if err := d.ensureChild(); err != nil {
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to supervisor of %s: %w (last: %w; see %s)",
				d.opts.Dir, ctx.Err(), err, filepath.Join(d.opts.Dir, logName))
		case <-time.After(wait):
		}
	}
}

func retryable(err error) bool {
	return noListener(err) || errors.Is(err, ErrStopping) || errors.Is(err, ErrLost)
}

func noListener(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist)
}

// ensureChild starts a supervisor unless the one started before still lives. It
// may find the lock taken and end at once: then another one is there.
func (d *dialer) ensureChild() error {
	if d.child != nil {
		select {
		case err := <-d.child:
			d.child = nil
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				break // it left the place to another
			}
			if d.killed++; exit.Exited() || d.killed > killedMax {
				return fmt.Errorf("supervisor ended at once (%w); see %s", err, filepath.Join(d.opts.Dir, logName))
			}
		default:
			return nil
		}
	}
	child, err := spawnSupervisor(d.opts)
	d.child = child
	return err
}

// spawnSupervisor starts the process in a session of its own, so that no signal
// to the agent's group or terminal reaches it.
func spawnSupervisor(opts Options) (chan error, error) {
	path := filepath.Join(opts.Dir, logName)
	mode := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if st, err := os.Stat(path); err == nil && st.Size() > logBytesMax {
		mode |= os.O_TRUNC
	}
	logFile, err := os.OpenFile(path, mode, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open supervisor log: %w", err)
	}
	defer logFile.Close()
	cmd := exec.Command(opts.Executable, SuperviseArgs(opts.SuperviseOptions)...)
	cmd.Dir = opts.Dir
	cmd.Env = supervisorEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	opts.Logger.Info("supervisor started", "pid", cmd.Process.Pid, "dir", opts.Dir)
	child := make(chan error, 1)
	go func() { child <- cmd.Wait() }()
	return child, nil
}

// supervisorEnv passes on what changes the Go runtime, and the faults of a build
// for fault tests, and nothing else: the agent's environment may hold secrets.
func supervisorEnv(env []string) []string {
	out := []string{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GOTRACEBACK", "GOCOVERDIR", "TMPDIR",
			clock.Env, failpoint.Env:
			out = append(out, kv)
		}
	}
	return out
}

func (d *dialer) connect(ctx context.Context) (*Client, error) {
	conn, err := dialSocket(ctx, d.opts.Dir)
	if err != nil {
		return nil, err
	}
	c := newClient(conn, d.opts.Logger)
	self, err := d.attach(ctx, c, conn)
	if err != nil {
		c.Close()
		if errors.Is(err, ErrLost) && speaksFrames(ctx, d.opts.Dir) {
			return nil, fmt.Errorf("%w: it is of an older release and ends with its last attempt", ErrVersion)
		}
		return nil, err
	}
	if slices.Equal(self.GetArgs(), SuperviseArgs(d.opts.SuperviseOptions)) {
		return c, nil
	}
	if self.GetRunning() > 0 {
		d.opts.Logger.Warn("supervisor keeps its old options while attempts run", "pid", self.GetPid())
		return c, nil
	}
	defer c.Close()
	if err := c.Stop(ctx); err != nil && !errors.Is(err, ErrLost) {
		return nil, fmt.Errorf("replace supervisor: %w", err)
	}
	return nil, ErrStopping
}

// attach is that of the client. A supervisor that does not answer it in time is killed, and counts as lost.
func (d *dialer) attach(ctx context.Context, c *Client, conn net.Conn) (*supervisorv1.Supervisor, error) {
	peer, err := peerOf(conn)
	if err != nil {
		return c.attach(ctx) // a supervisor that died says so, and none that is unknown can be killed
	}
	defer func() { _ = peer.Release() }()
	patient, cancel := context.WithTimeout(ctx, d.opts.Patience)
	defer cancel()
	self, err := c.attach(patient)
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return self, err
	}
	d.opts.Logger.Error("the supervisor does not answer; killing it", "pid", peer.Pid, "after", d.opts.Patience)
	if err := killProcess(peer); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: it was killed, as it did not answer within %v", ErrLost, d.opts.Patience)
}

// socketPath returns a path of the socket that is short enough for
// sockaddr_un, and what keeps it valid.
func socketPath(dir string) (path string, release func(), err error) {
	path = filepath.Join(dir, socketName)
	if len(path) < len(unix.RawSockaddrUnix{}.Path) {
		return path, func() {}, nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open supervisor directory: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, socketName), func() { unix.Close(fd) }, nil
}

func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	path, release, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	defer release()
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
