package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// KillFrozen kills the supervisor of a directory if it does not answer in time. It returns the PID of the
// supervisor that it killed; 0: the supervisor answered, or none listens. It needs no connection of an
// agent, and does not disturb one.
func KillFrozen(ctx context.Context, dir string, within time.Duration) (pid int, err error) {
	conn, err := dialSocket(ctx, dir)
	if err != nil {
		return 0, nil //nolint:nilerr // nothing listens: there is nothing to kill
	}
	c := newClient(conn, hclog.NewNullLogger())
	defer c.Close()
	peer, err := peerOf(conn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = peer.Release() }()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// No agent has session 0. A refusal and a lost connection also say that the supervisor is not frozen.
	if _, _, err := c.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return 0, nil
	}
	return peer.Pid, killProcess(peer)
}

// killProcess kills a supervisor, which may have died meanwhile.
func killProcess(p *os.Process) error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill supervisor %d: %w", p.Pid, err)
	}
	return nil
}

// peerOf returns the process that listens on the other side of a connection. The kernel tells its PID, so
// a process that stands still is found, too. The process is held by a pidfd, where the kernel has them:
// no other process that gets the PID later is meant.
func peerOf(conn net.Conn) (*os.Process, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("find the supervisor: %w", err)
	}
	var p *os.Process
	controlErr := raw.Control(func(fd uintptr) { p, err = processBehind(int(fd)) })
	if err := errors.Join(controlErr, err); err != nil {
		return nil, fmt.Errorf("find the supervisor: %w", err)
	}
	return p, nil
}

// processBehind opens the process that listens behind a socket.
func processBehind(fd int) (*os.Process, error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	if peer.Pid <= 0 {
		return nil, errors.New("it is in another PID namespace")
	}
	p, err := os.FindProcess(int(peer.Pid))
	if err != nil {
		return nil, err
	}
	// The kernel hangs up when the supervisor dies. While it has not, the PID is the supervisor's.
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(poll, 0); n != 0 || err != nil {
		_ = p.Release()
		return nil, fmt.Errorf("%w: it died meanwhile (%v)", ErrLost, err)
	}
	return p, nil
}
