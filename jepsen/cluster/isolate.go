package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageVariable tells a program which was started again how far it is: the stage
// and the name of the run.
const stageVariable = "ROTA_ISOLATED"

// Stages of isolation after the program that a user started.
const (
	stageInit   = "init"   // PID 1 of the new namespaces
	stageInside = "inside" // the program proper
	stageBelow  = "below"  // what that starts, and which may isolate itself again
)

// runPrefix begins the names of what a run leaves outside its namespaces.
const runPrefix = "rota-jepsen-"

// SharedDir is a folder of this run that commands of actions see as this process
// does. They have a /tmp of their own, so a file there is out of their reach.
const SharedDir = "/run"

// run is the name of this run, empty unless the process is isolated.
var run string

// Errors of isolation.
var (
	ErrCannotIsolate = errors.New("faults are injected into namespaces of their own, which needs root, the programs ip and nft, and a kernel that allows PID, mount and network namespaces")
	ErrNotIsolated   = errors.New("this process is not isolated: call cluster.Isolate first in main, or in TestMain")
)

// Isolate makes the rest of the program run in new PID, mount and network
// namespaces, as itself with the same arguments. It returns in there. The
// process that called it first never returns from it: it passes signals on, and
// ends as the program in there ends. An error means that this machine does not
// allow it, and that nothing has changed.
//
// Inside, /proc is that of the namespace, /run is empty, the network is a
// loopback device only, and the temporary folder is the run's own. It is removed
// at the end.
func Isolate() error {
	stage, name, _ := strings.Cut(os.Getenv(stageVariable), ":")
	switch stage {
	case stageInit:
		if os.Getpid() != 1 { // or we would start ourselves for ever
			return fmt.Errorf("%s=%s is set, but this process is not the first of a PID namespace: unset it", stageVariable, stageInit)
		}
		os.Exit(asInit(name))
	case stageInside:
		run = name
		return os.Setenv(stageVariable, stageBelow+":"+name)
	}
	if err := canIsolate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCannotIsolate, err)
	}
	// Process IDs of a namespace mean nothing outside of it, so only the outermost
	// run can tell which others are gone.
	if stage != stageBelow {
		removeLeftovers(isGone)
		name = runPrefix
	}
	name = strings.TrimSuffix(name, "-") + "-" + strconv.Itoa(os.Getpid())
	removeLeftovers(func(other string) bool { return other == name }) // of one that had our process ID
	code, err := startIsolated(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannotIsolate, err)
	}
	os.Exit(code)
	return nil
}

func canIsolate() error {
	if os.Geteuid() != 0 {
		return errors.New("this process is not root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	return nil
}

// passedOn are the signals that reach the program inside.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
}

// startIsolated runs the program in namespaces and returns its exit code.
func startIsolated(name string) (code int, err error) {
	dir := filepath.Join(os.TempDir(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	defer removeLeftovers(func(other string) bool { return other == name })
	// The death signal of the child is tied to this thread.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Env: append(os.Environ(), stageVariable+"="+stageInit+":"+name, "TMPDIR="+dir),
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
			Pdeathsig:  syscall.SIGKILL,
			Setpgid:    true, // a signal of the terminal arrives once, passed on by us
		},
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // an error means that it has just ended
		}
	}()
	_ = cmd.Wait() // the exit code says it
	return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// exitCode is that of a shell.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// codeNoInit is the exit code when the new namespaces could not be set up.
const codeNoInit = 125

// asInit is PID 1: it sets the namespaces up, starts the program, collects what
// dies without a parent, and ends with the program. The kernel then kills
// everything that is left.
func asInit(name string) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	if err := setUp(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n", ErrCannotIsolate, err)
		return codeNoInit
	}
	if err := os.Setenv(stageVariable, stageInside+":"+name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return codeNoInit
	}
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the program in its namespaces:", err)
		return codeNoInit
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(child.Pid, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == nil && pid == child.Pid {
			return exitCode(status)
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			fmt.Fprintln(os.Stderr, "wait for the program in its namespaces:", err)
			return codeNoInit
		}
	}
}

// setUp makes the new namespaces usable. Mounts must not reach the host.
func setUp() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	const careful = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", careful, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", SharedDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount "+SharedDir+": %w", err)
	}
	return tool("", "", "ip", "link", "set", "lo", "up")
}
