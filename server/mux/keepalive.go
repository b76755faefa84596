package mux

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A host that loses its power or its network sends no end of its connections. Raft waits
// without a time-out of its own in two places, and does nothing else meanwhile:
//
//   - A follower that receives a snapshot waits for the next part of it. Keepalives find that
//     the host is gone; with those of Go that takes 150 s.
//   - A leader that sends a snapshot waits for room in the connection, for as long as the whole
//     snapshot may take. Keepalives are not sent while data waits for an acknowledgment.
//
// A process that is stopped (SIGSTOP) is not noticed so: its host answers.
var keepAlives = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}

// unackedMax bounds how long data waits for an acknowledgment, or for room at the other side: a
// server whose disk hangs reads nothing meanwhile, and may do so for 10 s.
const unackedMax = 15 * time.Second

// keepAlive makes reads from a connection of Raft fail soon after the host of the other side is
// gone.
func keepAlive(conn net.Conn) error {
	if g, ok := conn.(*guest); ok {
		conn = g.Conn
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetKeepAliveConfig(keepAlives); err != nil {
		return fmt.Errorf("set keepalives of a connection: %w", err)
	}
	return nil
}

// boundUnacked makes writes to a connection of Raft fail when unackedMax is over. The kernel
// then takes that bound for keepalives too, so it is for the side that sends only.
func boundUnacked(_, _ string, raw syscall.RawConn) (err error) {
	errControl := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedMax.Milliseconds()))
	})
	return errors.Join(errControl, err)
}
