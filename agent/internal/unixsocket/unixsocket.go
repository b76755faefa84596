package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
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
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}
