package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// This file is what is left of version 1 of the protocol: frames of JSON, with their
// length in front. Both sides still recognise it, so that an upgrade or a downgrade with
// attempts that run says what to do.

// speaksFrames reports whether the supervisor speaks version 1 of the protocol, which
// answers any frame with another.
func speaksFrames(ctx context.Context, dir string) bool {
	conn, err := dialSocket(ctx, dir)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := io.WriteString(conn, "\x00\x00\x00\x02{}"); err != nil {
		return false
	}
	answer, _ := io.ReadAll(io.LimitReader(conn, 64))
	return len(answer) > 4 && bytes.HasPrefix(answer[4:], []byte(`{"op":"reply"`))
}

// frameRefuser answers agents that speak version 1 with the reason why they cannot go on.
type frameRefuser struct{ net.Listener }

// Accept implements net.Listener.
func (l frameRefuser) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &frameRefusingConn{Conn: conn}, nil
}

type frameRefusingConn struct {
	net.Conn
	looked bool
}

// Read implements net.Conn. An agent sends its first frame in one piece, so the first
// read has the bytes that tell. In a message of ttrpc the fifth byte is that of a small
// number.
func (c *frameRefusingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.looked || n == 0 {
		return n, err
	}
	c.looked = true
	if n < 5 || b[4] != '{' {
		return n, err
	}
	answer := fmt.Sprintf(`{"op":"reply","error":{"code":"version","message":"supervisor %d is of a newer release; it ends with its last attempt"}}`, os.Getpid())
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
	return 0, io.EOF
}
