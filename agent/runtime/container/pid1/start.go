package pid1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/runtime/container/initcall"
)

const (
	// defaultPath is searched when a command's environment has no PATH.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// commandOOMScore makes the kernel, when the machine is out of memory, end commands
	// before the sandbox.
	commandOOMScore = "500"
	oomScorePath    = "/proc/self/oom_score_adj"
)

// starter forks on one thread, which is alone in moving between cgroups.
type starter struct {
	work chan func()
	root string      // of commands; empty: that of this process
	cpus unix.CPUSet // of this process
	oom  string      // its own score

	mu      sync.Mutex
	waiting map[int]chan<- initcall.Ended
	// forking: a process may be there that is not in waiting yet. Until it is, only those in waiting are
	// reaped. The lock is not held meanwhile: a program on a disk that hangs must not keep commands
	// from being signalled and reaped.
	forking bool

	ended  chan os.Signal // SIGCHLD
	reaper sync.WaitGroup
}

func newStarter(root string) *starter {
	s := &starter{root: root, work: make(chan func()), waiting: make(map[int]chan<- initcall.Ended), ended: make(chan os.Signal, 1)}
	_ = unix.SchedGetaffinity(0, &s.cpus)
	if b, err := os.ReadFile(oomScorePath); err == nil {
		s.oom = strings.TrimSpace(string(b))
	}
	go func() {
		runtime.LockOSThread() // never unlocked
		for f := range s.work {
			f()
		}
	}()
	signal.Notify(s.ended, syscall.SIGCHLD)
	s.reaper.Go(func() {
		for range s.ended {
			s.reap()
		}
	})
	return s
}

// stop is for tests: afterwards children are those of others, and nothing may be started.
func (s *starter) stop() {
	signal.Stop(s.ended)
	close(s.ended)
	s.reaper.Wait()
	close(s.work)
}

// start starts a command. Its error is a sentence for the owner.
func (s *starter) start(c *initcall.Call) (pid int, exited <-chan initcall.Ended, err error) {
	p, err := prepare(&c.Command)
	if err != nil {
		return 0, nil, err
	}
	if err := give(c.Files.Std, p.user); err != nil {
		return 0, nil, err
	}
	p.attr.Sys.Chroot = s.root
	p.attr.Sys.Setctty = c.Terminal // of descriptor 0
	for _, fd := range c.Files.Std {
		p.attr.Files = append(p.attr.Files, uintptr(fd))
	}
	if c.Files.V2 >= 0 {
		p.attr.Sys.UseCgroupFD, p.attr.Sys.CgroupFD = true, c.Files.V2
	}
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		pid, exited, err = s.fork(c, p)
	}
	<-done
	if err != nil {
		err = fmt.Errorf("start %s in %s as %s: %w", p.path, p.attr.Dir, p.user, err)
	}
	return pid, exited, err
}

// fork runs on the thread of the starter.
func (s *starter) fork(c *initcall.Call, p *prepared) (int, <-chan initcall.Ended, error) {
	defer s.leave(c)
	for _, fd := range c.Files.Enter {
		if _, err := unix.Write(fd, []byte("0")); err != nil { // "0" is the calling thread
			return 0, nil, fmt.Errorf("enter the cgroup of the attempt: %w", err)
		}
	}
	if err := pin(c.CPUs); err != nil {
		return 0, nil, fmt.Errorf("bind to CPUs %v: %w", c.CPUs, err)
	}
	s.setForking(true)
	_ = os.WriteFile(oomScorePath, []byte(commandOOMScore), 0)
	pid, err := syscall.ForkExec(p.path, c.Argv, &p.attr)
	_ = os.WriteFile(oomScorePath, []byte(s.oom), 0)
	defer s.reap() // what has ended meanwhile
	defer s.setForking(false)
	if err != nil {
		return 0, nil, err
	}
	exited := make(chan initcall.Ended, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[pid] = exited
	return pid, exited, nil
}

func (s *starter) setForking(now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forking = now
}

// leave moves the thread back. One that stayed would be killed with the attempt, and with it the
// sandbox. Ending here is the same, but known.
func (s *starter) leave(c *initcall.Call) {
	for _, fd := range c.Files.Leave {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			fmt.Fprintln(os.Stderr, "rota-init: leave the cgroup of an attempt:", err)
			os.Exit(1)
		}
	}
	if len(c.CPUs) > 0 {
		_ = unix.SchedSetaffinity(0, &s.cpus)
	}
}

func pin(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}

// signal sends a signal to a main process, or to the group that it leads if the number is
// negative, unless the process was reaped: then its number may be another's.
func (s *starter) signal(to int, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[max(to, -to)] != nil {
		_ = syscall.Kill(to, sig)
	}
}

// reap collects every dead child: main processes, and orphans that nobody else waits for.
func (s *starter) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forking {
		for pid := range s.waiting {
			s.reapOne(pid)
		}
		return
	}
	for s.reapOne(-1) {
	}
}

// reapOne collects a dead child, or any of them with -1, and reports whether there was one.
func (s *starter) reapOne(pid int) bool {
	var e initcall.Ended
	var usage syscall.Rusage
	dead, err := syscall.Wait4(pid, &e.Status, syscall.WNOHANG, &usage)
	for errors.Is(err, syscall.EINTR) {
		dead, err = syscall.Wait4(pid, &e.Status, syscall.WNOHANG, &usage)
	}
	if err != nil || dead <= 0 {
		return false
	}
	if exited, ok := s.waiting[dead]; ok {
		e.User, e.System = time.Duration(usage.Utime.Nano()), time.Duration(usage.Stime.Nano())
		e.MaxRSSKiB = usage.Maxrss
		delete(s.waiting, dead)
		exited <- e
	}
	return true
}

// prepared is a command, ready but for the fork.
type prepared struct {
	path string
	user account
	attr syscall.ProcAttr
}

func prepare(c *initcall.Command) (*prepared, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, errors.New("no command")
	}
	user, err := findAccount(c.User)
	if err != nil {
		return nil, err
	}
	dir, err := workDir(c.Dir, user)
	if err != nil {
		return nil, err
	}
	env := withDefault(withDefault(c.Env, "HOME", user.home), "USER", user.name)
	path, err := lookPath(c.Argv[0], dir, env)
	if err != nil {
		return nil, err
	}
	return &prepared{path, user, syscall.ProcAttr{Dir: dir, Env: env, Sys: &syscall.SysProcAttr{
		Setsid: true, Credential: &syscall.Credential{Uid: user.uid, Gid: user.gid, Groups: user.groups, NoSetGroups: os.Geteuid() != 0},
	}}}, nil
}

// give makes standard input, output and error files of the user, who may open /dev/stdout and the
// like. The null device is everybody's.
func give(std [3]int, user account) error {
	for _, fd := range std {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if err == nil && st.Rdev != unix.Mkdev(1, 3) {
			err = unix.Fchown(fd, int(user.uid), int(user.gid))
		}
		if err != nil {
			return fmt.Errorf("give standard input and output to %s: %w", user, err)
		}
	}
	return nil
}

func withDefault(env []string, name, value string) []string {
	for _, kv := range env {
		if strings.HasPrefix(kv, name+"=") {
			return env
		}
	}
	return append(env[:len(env):len(env)], name+"="+value)
}

// workDir returns the working directory. One below the workspace is made, for the user: links
// that the user may have put there are not followed out of it.
func workDir(dir string, user account) (string, error) {
	root, err := os.OpenRoot(initcall.Workspace)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", initcall.Workspace, err)
	}
	defer root.Close()
	if err := root.Lchown(".", int(user.uid), int(user.gid)); err != nil {
		return "", fmt.Errorf("give %s to %s: %w", initcall.Workspace, user, err)
	}
	if filepath.IsAbs(dir) {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() {
			return "", fmt.Errorf("working directory %s is not a directory of the container", dir)
		}
		return dir, nil
	}
	if dir != "" && !filepath.IsLocal(dir) {
		return "", fmt.Errorf("working directory %q is not below %s: give a path without .., or an absolute one that exists", dir, initcall.Workspace)
	}
	if err := makeAllFor(root, dir, user); err != nil {
		return "", fmt.Errorf("make working directory %s: %w", dir, err)
	}
	return filepath.Join(initcall.Workspace, dir), nil
}

// making is held while a working directory is made: a start would take a directory that another one makes
// for its own, or put one into it before it is given away.
var making sync.Mutex

// makeAllFor makes the directories of a path that are not there. One that another start has made is there.
func makeAllFor(root *os.Root, path string, user account) error {
	making.Lock()
	defer making.Unlock()
	at := ""
	for _, part := range strings.Split(filepath.Clean(path), "/") {
		at = filepath.Join(at, part)
		if err := makeFor(root, at, user); err != nil {
			return err
		}
	}
	return nil
}

// makeFor makes a directory that belongs to a user, if it is not there. Other commands may exchange it
// before it is given away: so the user gets an empty directory of this process or nothing.
func makeFor(root *os.Root, path string, user account) error {
	err := root.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	made, err := root.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer made.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(made.Fd()), &st); err != nil {
		return err
	}
	if _, err := made.Readdirnames(1); !errors.Is(err, io.EOF) || int(st.Uid) != os.Geteuid() {
		return errors.Join(fmt.Errorf("%s was exchanged while it was made", path), err)
	}
	return made.Chown(int(user.uid), int(user.gid))
}

// lookPath finds a program as execvp would, with the command's own PATH.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) {
			return name, nil
		}
		return filepath.Join(dir, name), nil
	}
	path := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, place := range filepath.SplitList(path) {
		if !filepath.IsAbs(place) {
			continue // what it means would depend on the working directory
		}
		file := filepath.Join(place, name)
		if st, err := os.Stat(file); err == nil && !st.IsDir() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not in PATH %s of the container", name, path)
}

// account is a user of the container.
type account struct {
	uid, gid   uint32
	groups     []uint32
	name, home string
}

func (a account) String() string { return "user " + strconv.FormatUint(uint64(a.uid), 10) }
