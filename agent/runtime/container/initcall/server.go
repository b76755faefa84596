package initcall

import (
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Call is a command that was received.
type Call struct {
	Command
	Files Files
	conn  *net.UnixConn
	fds   []int
}

// Receive reads the command of a connection.
func Receive(conn *net.UnixConn) (*Call, error) {
	c := &Call{conn: conn}
	var err error
	if c.fds, err = receive(conn, &c.Command, messageMax); err == nil {
		var f *Files
		if f, err = filesOf(&c.Command, c.fds); err == nil {
			c.Files = *f
			return c, nil
		}
	}
	c.CloseFiles()
	return nil, err
}

// CloseFiles closes the descriptors of the command, once it has started or cannot.
func (c *Call) CloseFiles() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	c.fds = nil
}

// Started answers that the command runs or, with a sentence, that it cannot be started.
func (c *Call) Started(why string) error {
	if len(why) > sentenceMax { // it may name a program with a long name
		why = strings.ToValidUTF8(why[:sentenceMax], "") + "..."
	}
	return send(c.conn, Started{why})
}

// Ended answers how it ended.
func (c *Call) Ended(e Ended) error { return send(c.conn, e) }

// Signals passes on the signals that the supervisor sends, until it has closed the connection.
func (c *Call) Signals(send func(syscall.Signal)) {
	var b [1]byte
	for {
		if n, err := c.conn.Read(b[:]); n == 0 || err != nil {
			return
		}
		send(syscall.Signal(b[0]))
	}
}
