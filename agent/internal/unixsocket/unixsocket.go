package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pathBytesMax is the longest path that the kernel takes.
const pathBytesMax = 107

// Listen listens on a socket that only its owner can use. It takes the place of a socket
// that nobody listens on any more. It fails if the path is something else, or in use.
func Listen(path string) (net.Listener, error) {
	if len(path) > pathBytesMax {
		return nil, fmt.Errorf("the path of the socket %s has %d bytes, at most %d are possible; choose a shorter one",
			path, len(path), pathBytesMax)
	}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is no socket; choose another path", path)
	default:
		if conn, err := net.Dial("unix", path); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("another process listens on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return (&net.ListenConfig{Control: private}).Listen(context.Background(), "unix", path)
}

// private has the path of a socket made with a mode that lets in nobody but its owner: set
// afterwards, it would come too late for whoever was quick.
func private(_, _ string, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(err, failed)
}
