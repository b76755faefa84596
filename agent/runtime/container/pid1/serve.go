package pid1

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/runtime/container/initcall"
)

// SocketDir is where the folder of the socket is mounted, and Program this program.
const (
	SocketDir = ownDir + "/socket"
	Program   = ownDir + "/init"
)

// ownDir has what this process needs. rootDir is where the root file system is mounted a second time,
// for commands to be in. Programs whose root is not that of their mount namespace can make no user
// namespace, whatever call they use, and without one no other namespace and no mount.
const (
	ownDir  = "/dev/rota"
	rootDir = ownDir + "/root"
)

// Main is all that the first process of a sandbox does. It returns only errors.
func Main() error {
	l, err := listen(SocketDir)
	if err != nil {
		return err
	}
	if err := unix.Unmount(SocketDir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the folder of the socket: %w", err)
	}
	if err := mountRoot(); err != nil {
		return err
	}
	if err := giveUp(); err != nil {
		return err
	}
	return Serve(l, ".")
}

// mountRoot mounts the root of commands, and makes it the working directory of this process. Commands
// start there by ".", not by its path: root in the sandbox owns /dev and could put a link to the first
// root in its place. For the same reason ownDir becomes a mount of its own, which is read-only: the
// kernel lets nobody rename or remove a directory on which something is mounted.
func mountRoot() error {
	if err := os.Mkdir(rootDir, 0o755); err != nil {
		return err
	}
	const own = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	err := unix.Mount(ownDir, ownDir, "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("", ownDir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|own, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s for itself: %w", ownDir, err)
	}
	if err := unix.Mount("/", rootDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount the root of commands: %w", err)
	}
	return os.Chdir(rootDir)
}

func listen(dir string) (*net.UnixListener, error) {
	path := filepath.Join(dir, initcall.SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the supervisor: %w", err)
	}
	unix.Umask(0o022) // of commands
	l.SetUnlinkOnClose(false)
	return l, nil
}

// giveUp drops what commands must not have, from every thread and for good, and hides this
// process from them. It keeps for itself what it takes to start them in rootDir.
func giveUp() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range []uint{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SETPCAP} {
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
		if c != unix.CAP_SYS_CHROOT {
			caps[0].Effective &^= 1 << c
			caps[0].Permitted &^= 1 << c
		}
	}
	if err := setCapabilities(&header, &caps); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide from the commands: %w", err)
	}
	return nil
}

// acceptAgain is how long nothing is accepted after a failure, such as that of too many open files.
const acceptAgain = 20 * time.Millisecond

// Serve starts commands until the listener is closed. Their root is chroot, or that of this process
// if it is empty. Their orphans become children of this process if it is the first of a PID
// namespace.
func Serve(l *net.UnixListener, chroot string) error {
	ignoreSignals()
	s := newStarter(chroot)
	return acceptAll(l.AcceptUnix, func(conn *net.UnixConn) { go s.serve(conn) })
}

// acceptAll accepts connections until the listener is closed. Whatever else fails passes, and the
// sandbox must not end for it, with all that runs in it.
func acceptAll(accept func() (*net.UnixConn, error), serve func(*net.UnixConn)) error {
	for {
		conn, err := accept()
		switch {
		case err == nil:
			serve(conn)
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept: %w", err)
		default:
			time.Sleep(acceptAgain)
		}
	}
}

// ignoreSignals keeps commands from ending the sandbox by a signal. A signal that is ignored
// would be ignored in commands, too; one that is caught is not.
func ignoreSignals() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGABRT, syscall.SIGTRAP,
		// Of these the runtime of Go makes a crash if a process sends them.
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGSYS, syscall.SIGSTKFLT,
		syscall.SIGXCPU, syscall.SIGXFSZ)
	go func() {
		for range caught {
			// They mean nothing here.
		}
	}()
}

// serve starts the command of a connection and answers twice.
func (s *starter) serve(conn *net.UnixConn) {
	defer conn.Close()
	if !fromOutside(conn) {
		return
	}
	call, err := initcall.Receive(conn)
	if err != nil {
		return // the supervisor only looked whether the sandbox is alive, or is gone
	}
	pid, exited, err := s.start(call)
	call.CloseFiles()
	if err != nil {
		_ = call.Started(err.Error())
		return
	}
	if call.Started("") != nil {
		s.signal(pid, syscall.SIGKILL)
	}
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		call.Signals(func(sig syscall.Signal) { s.signal(-pid, sig) })
	}()
	select {
	case e := <-exited:
		_ = call.Ended(e)
	case <-hungUp:
		s.signal(pid, syscall.SIGKILL)
		<-exited
	}
}

// fromOutside reports whether the other side is a process of the node: those have no number in
// the PID namespace of a sandbox. Outside of one, as in tests, everybody may ask.
func fromOutside(conn *net.UnixConn) bool {
	if os.Getpid() != 1 {
		return true
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	outside := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		outside = err == nil && peer.Pid == 0
	})
	return err == nil && outside
}
