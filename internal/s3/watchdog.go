package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errStalled: no byte passed for too long.
var errStalled = errors.New("the object store stopped in the middle")

// watchdog ends a request of which no byte has passed for a while, in either direction. However
// long a large object takes, it ends if it goes on.
type watchdog struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	within time.Duration
}

// newWatchdog returns the context of a request, which lasts until end.
func newWatchdog(ctx context.Context, within time.Duration) (*watchdog, context.Context) {
	w := &watchdog{within: cmp.Or(within, stallMax)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(w.within, func() {
		w.cancel(fmt.Errorf("%w: no byte passed for %v", errStalled, w.within))
	})
	return w, w.ctx
}

// passed says that the request goes on.
func (w *watchdog) passed() { w.timer.Reset(w.within) }

func (w *watchdog) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// why is the error of a request, or that it stalled.
func (w *watchdog) why(err error) error {
	if cause := context.Cause(w.ctx); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// sent returns the body of a request, whose bytes count as they are read to be sent.
func (w *watchdog) sent(body io.Reader) io.Reader { return sentBody{body, w} }

type sentBody struct {
	body io.Reader
	*watchdog
}

func (b sentBody) Read(p []byte) (int, error) {
	b.passed()
	return b.body.Read(p)
}

// received is the body of an answer. It is watched while the caller waits for it, and the watchdog
// ends with it.
type received struct {
	body io.ReadCloser
	*watchdog
}

func (b *received) Read(p []byte) (int, error) {
	b.passed()
	defer b.timer.Stop()
	n, err := b.body.Read(p)
	if errors.Is(err, io.EOF) {
		return n, err
	}
	return n, b.why(err)
}

func (b *received) Close() error {
	err := b.body.Close()
	b.end()
	return err
}
