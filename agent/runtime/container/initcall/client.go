package initcall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerMax is how long rota-init may take to start a command. It forks; a machine without
// memory can make that slow.
const answerMax = time.Minute

// signalMax is how long a signal may take to be handed over. A sandbox whose first process reads
// none must not hold up the supervisor.
const signalMax = time.Second

// ErrGone says that nothing listens in the sandbox any more: it has ended.
var ErrGone = errors.New("the sandbox has ended")

// StartError is why a command could not be started, in words for its owner.
type StartError string

func (e StartError) Error() string { return string(e) }

// Process is a command that runs in a sandbox.
type Process struct{ conn *net.UnixConn }

// Dial connects to the rota-init that listens in a folder. ErrGone: none does. Other errors are of
// this process, such as too many open files, and say nothing of the sandbox.
func Dial(dir string) (*net.UnixConn, error) {
	// The path of a socket may have 107 bytes, and that of a folder 4,095.
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, gone(fmt.Errorf("open the folder of the sandbox: %w", err))
	}
	defer unix.Close(fd)
	path := filepath.Join("/proc/self/fd", strconv.Itoa(fd), SocketName)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, gone(fmt.Errorf("connect to the sandbox: %w", err))
	}
	return conn, nil
}

// gone makes an error of a socket that nothing listens at ErrGone.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// Listening reports whether the sandbox of a folder can start commands.
func Listening(dir string) bool {
	conn, err := Dial(dir)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Gone reports whether nothing listens in a folder, for certain: a process that cannot look does not
// know.
func Gone(dir string) bool {
	conn, err := Dial(dir)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, ErrGone)
}

// Start has the sandbox of a folder start a command. The descriptors stay the caller's. When the
// context ends it fails with ErrGone, as the command may be started nevertheless.
func Start(ctx context.Context, dir string, c Command, f Files) (*Process, error) {
	conn, err := Dial(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	wait := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c.IntoV2, c.V1 = f.V2 >= 0, len(f.Enter)
	var answer Started
	if err = send(conn, &c, f.list()...); err == nil {
		err = hear(conn, &answer)
	}
	if err == nil && answer.Error != "" {
		err = StartError(answer.Error)
	} else if err != nil {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	if !wait() && err == nil {
		err = fmt.Errorf("%w: %w", ErrGone, ctx.Err())
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Process{conn}, nil
}

// Signal has a signal sent to the process group of the command. It does nothing once the command
// has ended. An error says that the sandbox or the command has.
func (p *Process) Signal(sig syscall.Signal) error {
	_ = p.conn.SetWriteDeadline(time.Now().Add(signalMax))
	_, err := p.conn.Write([]byte{byte(sig)})
	return err
}

// Close gives the process up. The sandbox kills it, if it has not ended.
func (p *Process) Close() { _ = p.conn.Close() }

// Wait returns how the main process ended, or ErrGone if the sandbox ended first. It is called
// once.
func (p *Process) Wait() (Ended, error) {
	defer p.conn.Close()
	var e Ended
	if err := hear(p.conn, &e); err != nil {
		return Ended{}, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if !e.Status.Exited() && !e.Status.Signaled() || e.User < 0 || e.System < 0 || e.MaxRSSKiB < 0 {
		return Ended{}, fmt.Errorf("%w: %w: a process ended with %+v", ErrGone, ErrMalformed, e)
	}
	return e, nil
}

// hear reads an answer. The first process of a sandbox lives among the commands, so it is
// believed nothing that it need not say: no large message, and no descriptors.
func hear(conn *net.UnixConn, m any) error {
	fds, err := receive(conn, m, answerBytesMax)
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if err == nil && len(fds) > 0 {
		err = fmt.Errorf("%w: an answer with %d descriptors", ErrMalformed, len(fds))
	}
	return err
}
