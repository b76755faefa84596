package client

import (
	"context"

	"connectrpc.com/connect"
)

// First opens a stream of messages and returns it with the first one; nil if there is none. It
// opens the stream again, as a call is repeated, until one has come or the stream has ended well:
// servers may be lost, or have no leader for a moment. The caller closes the stream. When later
// messages fail, only the caller knows where to go on.
func First[M any](ctx context.Context, c *Client, open func(context.Context) (*connect.ServerStreamForClient[M], error)) (*connect.ServerStreamForClient[M], *M, error) {
	return FirstUnless(ctx, c, open, nil)
}

// FirstUnless is First for a caller that can do without the stream. Where enough returns true for an
// error, the stream is not opened again. A nil enough is First.
func FirstUnless[M any](ctx context.Context, c *Client, open func(context.Context) (*connect.ServerStreamForClient[M], error), enough func(error) bool) (*connect.ServerStreamForClient[M], *M, error) {
	p := c.persist()
	for {
		try, to := withAttempt(ctx)
		stream, err := open(try)
		if err == nil {
			if stream.Receive() {
				return stream, stream.Msg(), nil
			}
			if err = stream.Err(); err == nil {
				return stream, nil, nil
			}
			_ = stream.Close()
		}
		if enough != nil && enough(err) {
			return nil, nil, err
		}
		if err := p.again(ctx, to.addr, err); err != nil {
			return nil, nil, err
		}
	}
}
