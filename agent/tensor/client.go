package tensor

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
)

// Client is a connection to the state manager of an agent. Calls follow each other. What it
// has created and not committed goes when it is closed.
type Client struct{ conn *net.UnixConn }

// Dial connects to unix:/path.
func Dial(ctx context.Context, address string) (*Client, error) {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: %q is no address of states; use unix:/path", ErrInvalid, address)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if limit, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(limit)
	}
	return &Client{conn.(*net.UnixConn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) call(req request) (a answer, files []*os.File, err error) {
	if err := writeMessage(c.conn, req, nil); err != nil {
		return a, nil, err
	}
	if err := readMessage(c.conn, &a); err != nil {
		return a, nil, err
	}
	if a.Error != nil {
		return a, nil, a.Error.decode()
	}
	files, err = readFiles(c.conn, len(a.Sizes))
	return a, files, err
}

// List returns the states of a deployment, or of all if it is empty.
func (c *Client) List(deployment string) ([]Info, error) {
	a, _, err := c.call(request{Op: "list", Deployment: deployment})
	return a.States, err
}

// Stat returns the state and the counts of the store.
func (c *Client) Stat() (Stat, error) {
	a, _, err := c.call(request{Op: "stat"})
	if err != nil || a.Stat == nil {
		return Stat{}, err
	}
	return *a.Stat, nil
}

// Info returns one state with its tensors. It fails with ErrNotFound or ErrCorrupt.
func (c *Client) Info(k Key) (Info, error) {
	a, _, err := c.call(request{Op: "info", Key: k})
	if err != nil || a.Info == nil {
		return Info{}, err
	}
	return *a.Info, nil
}
