package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	files "rota/agent/internal/record"
	"rota/agent/plan"
	"rota/internal/failpoint"
)

// attemptsMax bounds what runs and what has ended and was not forgotten.
const attemptsMax = 16384

// Supervise is the supervisor process: it returns when it has been told to stop,
// or has nothing to do any more. It must be the main thing its process does: it
// reaps every child and becomes the subreaper of everything below it.
//
// A second supervisor of the same directory returns nil at once: the first one
// serves.
func Supervise(ctx context.Context, opts SuperviseOptions) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	log := hclog.New(&hclog.LoggerOptions{Name: "supervisor", Output: os.Stderr, Level: hclog.Info})
	lock, err := lockDir(opts.Dir)
	if errors.Is(err, files.ErrLocked) {
		log.Info("another supervisor serves this directory", "dir", opts.Dir)
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := keepDescriptors(); err != nil {
		return err
	}
	// Not signal.Ignore: attempts would begin with these signals ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	collectBetweenForks()
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	s, err := newSupervisor(opts, log)
	if err != nil {
		log.Error("cannot start", "error", err)
		return err
	}
	return s.serve(ctx)
}

// keepDescriptors keeps open files that whoever started this process passed on,
// knowingly or not, from going on to attempts.
func keepDescriptors() error {
	err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // Linux before 5.11
	if err != nil {
		return fmt.Errorf("keep open files to this process: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// lockDir makes this the only supervisor of a directory, for as long as the
// file is open.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make supervisor directory: %w", err)
	}
	f, err := files.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock supervisor directory: %w", err)
	}
	return f, nil
}

// supervisor is the parent of every attempt.
type supervisor struct {
	opts    SuperviseOptions
	user    *userID
	log     hclog.Logger
	devNull *os.File
	confine confinement
	spawner *spawner
	output  *outputStore
	work    *workDirs
	cores   *coresFiles
	alarm   *alarm

	throttles *throttleFiles

	isolation isolation
	runners   sync.WaitGroup

	// serving is held while a request is handled, but for kills. It is taken before mu.
	serving sync.Mutex

	mu        sync.Mutex
	attempts  map[plan.Key]*attempt
	running   int
	journal   *journal
	compactAt int64
	// compactLate is when to try again to compact a journal that could not be; zero: there is none.
	compactLate time.Time
	// unsaid: the journal does not say yet that this supervisor is there. Nothing starts before it does.
	unsaid    bool
	idleSince time.Time
	stopping  bool
	stop      chan string // one value: why

	// session is that of the agent that connected last; nil: none. It changes while mu is held, to another agent's while
	// killing is, and is read also by requests that must not wait for mu.
	session atomic.Pointer[session]

	// killing guards what it takes to kill, so that a lease ends also while a disk hangs: mu is held
	// while files are written, and this never is. It may be taken while mu is held.
	killing  sync.Mutex
	live     map[*attempt]struct{} // those that have not ended
	deadline int64                 // CLOCK_BOOTTIME; 0: none
	expired  bool                  // the deadline passed
}

func newSupervisor(opts SuperviseOptions, log hclog.Logger) (*supervisor, error) {
	s := &supervisor{opts: opts, log: log, attempts: make(map[plan.Key]*attempt), live: make(map[*attempt]struct{}),
		compactAt: journalBytesMin, idleSince: time.Now(), stop: make(chan string, 1)}
	var err error
	if s.user, err = opts.user(); err != nil {
		return nil, err
	}
	if s.devNull, err = os.Open(os.DevNull); err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	unix.Umask(0o022) // what attempts inherit; our own files say their mode
	var h *history
	if s.journal, h, err = openJournal(filepath.Join(opts.Dir, journalName)); err != nil {
		return nil, err
	}
	if s.confine, err = newConfinement(opts); err != nil {
		return nil, err
	}
	if s.spawner, err = newSpawner(s.otherUsers()); err != nil {
		return nil, err
	}
	if s.alarm, err = newAlarm(); err != nil {
		return nil, err
	}
	if err := s.recover(h); err != nil {
		return nil, err
	}
	log.Info("started", "pid", os.Getpid(), "mode", s.confine.mode(), "not_enforced", s.notEnforced())
	return s, nil
}

// otherUsers says whether attempts run as somebody else.
func (s *supervisor) otherUsers() bool { return s.user != nil || s.opts.AttemptUIDs != "" }

// notEnforced says in words what this supervisor cannot do.
func (s *supervisor) notEnforced() []string {
	return append(slices.Clone(s.isolation.missing), s.confine.notEnforced()...)
}

// openDir opens the data directory, and lets the attempts' user pass through it
// to its working directories, and see nothing on the way.
func (s *supervisor) openDir() (*os.Root, error) {
	root, err := os.OpenRoot(s.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("open supervisor directory: %w", err)
	}
	if !s.otherUsers() {
		return root, nil
	}
	st, err := root.Stat(".")
	if err == nil {
		err = root.Chmod(".", st.Mode().Perm()|0o111)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("let attempts reach their working directories: %w", err)
	}
	return root, nil
}

// recover ends what a dead supervisor left: first the processes, then their
// attempts. Only then is anything new possible.
func (s *supervisor) recover(h *history) error {
	if err := killLeft(s.confine, s.opts, h, s.log); err != nil {
		return err
	}
	failpoint.Hit(failpoint.LeftoversKilled)
	s.confine.start()
	// What attempts left may fill the disk. Nothing else may need room before that is being removed.
	root, err := s.openDir()
	if err != nil {
		return err
	}
	if s.work, err = newWorkDirs(root, s.log); err != nil {
		return err
	}
	if s.output, err = newOutputStore(s.opts, s.log); err != nil {
		return err
	}
	for _, e := range h.exits() {
		s.attempts[e.Key] = &attempt{ended: e}
	}
	message := "its supervisor died"
	if h.boot != nil && h.boot.BootID != bootID() {
		message = "the machine was restarted"
	}
	var lost []*plan.Exit
	for k := range h.started {
		e := &plan.Exit{Key: k, Reason: plan.ReasonSupervisorLost, Message: message}
		e.Stdout, e.Stderr = s.output.lastBytes(k)
		s.attempts[k] = &attempt{ended: e}
		lost = append(lost, e)
	}
	if len(lost) > 0 {
		s.log.Warn("a supervisor died before", "attempts_lost", len(lost))
	}
	s.takeOver(lost)
	if err := s.isolate(); err != nil {
		return err
	}
	if s.cores, err = newCoresFiles(root, s.log); err != nil {
		return err
	}
	s.throttles, err = newThrottleFiles(root, s.log)
	return err
}

// serve listens until something ends the supervisor.
func (s *supervisor) serve(ctx context.Context) error {
	server, err := newServer(s)
	if err != nil {
		_ = s.shutDown(nil)
		return err
	}
	l, err := s.listen()
	if err != nil {
		_ = s.shutDown(nil)
		return err
	}
	go func() { _ = server.Serve(context.WithoutCancel(ctx), frameRefuser{l}) }() // a signal does not cut the agent off
	go s.alarm.watch(s.deadlinePassed)
	stopping := make(chan struct{})
	s.runners.Go(func() { s.sweep(stopping) })
	signalled := ctx.Done()
	for {
		select {
		case <-signalled:
			signalled = nil
			s.beginStop("told to stop by a signal")
		case why := <-s.stop:
			s.log.Info("stopping", "why", why)
			close(stopping)
			return s.shutDown(server)
		}
	}
}

// sweep drops what is kept for long enough, and ends a supervisor that nobody needs, until stopping is
// closed. Nothing that has to end in time waits for it: its disk may hang.
func (s *supervisor) sweep(stopping <-chan struct{}) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-stopping:
			return
		case now := <-tick.C:
			s.output.sweep(now)
			s.isolation.owners.sweep(now)
			s.compactAgain(now)
			s.endIfIdle(now)
		}
	}
}

func (s *supervisor) listen() (net.Listener, error) {
	path, release, err := socketPath(s.opts.Dir)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old supervisor socket: %w", err)
	}
	// The mode has to be right from the first moment on.
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the agent: %w", err)
	}
	l.SetUnlinkOnClose(false) // the path may be one of an open descriptor
	return l, nil
}

// endIfIdle ends a supervisor that nobody needs: whoever comes starts another.
func (s *supervisor) endIfIdle(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running > 0 || s.session.Load() != nil {
		s.idleSince = now
		return
	}
	if s.over() {
		s.beginStopLocked("everything was killed at the deadline and no agent is there")
	} else if now.Sub(s.idleSince) >= s.opts.Linger {
		s.beginStopLocked("nothing runs and no agent came")
	}
}

func (s *supervisor) beginStop(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginStopLocked(why)
}

func (s *supervisor) beginStopLocked(why string) {
	if !s.stopping {
		s.stopping = true
		s.stop <- why
	}
}

// shutDown kills everything, journals how it ended, and leaves nothing behind
// but the journal and the output.
func (s *supervisor) shutDown(server *ttrpc.Server) error {
	s.killAll(killOrder{plan.ReasonSupervisorLost, "its supervisor was told to stop"})
	s.runners.Wait()
	if server != nil {
		os.Remove(filepath.Join(s.opts.Dir, socketName))
		s.hangUp(server)
	}
	s.work.close()
	s.isolation.close()
	s.confine.close()
	return s.journal.close()
}

// hangUp lets the agent have its answers and the ends that are left, if it takes them
// soon.
func (s *supervisor) hangUp(server *ttrpc.Server) {
	if ss := s.session.Load(); ss != nil {
		ss.finish()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// asUser says whom a command runs as, for error messages.
func asUser(u *userID) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf(" as user %d", u.uid)
}
