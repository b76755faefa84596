package gateway

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errClientGone = errors.New("the client is gone")
	errStalled    = errors.New("the worker sends nothing")
)

// stallFactor is how many times the limit one request may be without a token while its worker
// sends tokens to others: it is preempted then, not hanging.
const stallFactor = 10

// flight is one request of a client while it runs, as those see it who may stop it.
type flight struct {
	id     uint64 // of the trajectory; 0: none
	policy string
	worker *worker
	limit  time.Duration // between two bytes of the worker; 0: none
	// probe, if set, asks the worker of a request without a stream whether it is there.
	probe func(*worker) error

	mu    sync.Mutex
	conn  net.Conn
	cause error
	timer *time.Timer
	// goesOn: if it is stopped now, it can go on later from what was generated. missed is why it was
	// to be stopped while it could not.
	goesOn bool
	missed error
	heard  atomic.Int64 // when this request got its last byte, in Unix nanoseconds
	// writing: the client is being sent something, so nothing is read of the worker.
	writing atomic.Bool
}

// goTo says at which worker the request runs.
func (f *flight) goTo(w *worker) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worker = w
}

// interrupt stops the request for good or until it may go on, whose reason is the cause.
func (f *flight) interrupt(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop(cause)
}

// stop is interrupt with the lock held.
func (f *flight) stop(cause error) {
	if f.cause == nil {
		f.cause = cause
	}
	if f.conn != nil {
		f.conn.Close()
	}
}

// hold stops the request if it can go on later.
func (f *flight) hold(cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.goesOn {
		f.stop(cause)
	} else {
		f.missed = cause
	}
}

// pin keeps hold from stopping the request. An error is why it was stopped already.
func (f *flight) pin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.goesOn = false
	return f.cause
}

// unpin lets hold stop the request again. An error is why it was to be stopped meanwhile.
func (f *flight) unpin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	missed := f.missed
	f.goesOn, f.missed = true, nil
	return missed
}

// use says on which connection the request is. An error is why it was stopped meanwhile.
func (f *flight) use(c net.Conn) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cause != nil {
		return f.cause
	}
	f.conn = c
	if f.limit > 0 && c != nil {
		f.heard.Store(time.Now().UnixNano()) // the worker has sent nothing yet
		if f.timer == nil {
			f.timer = time.AfterFunc(f.limit, f.silent)
		} else {
			f.timer.Reset(f.limit)
		}
	}
	return nil
}

// leave ends the use of a connection and returns why the request was stopped, if it was. Once it
// has returned, nobody closes the connection. A reason that does not end the request is
// forgotten, so that it can go on.
func (f *flight) leave() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
	f.conn, f.goesOn = nil, false
	cause := f.cause
	if errors.Is(cause, errSuspended) || errors.Is(cause, errPublishing) || errors.Is(cause, errStalled) {
		f.cause = nil
	}
	return cause
}

// hear notes that the worker has sent something.
func (f *flight) hear() {
	now := time.Now().UnixNano()
	f.heard.Store(now)
	f.worker.heard.Store(now)
}

// toClient runs a write to the client. A worker whose answer nobody reads is not silent.
func (f *flight) toClient(write func() error) error {
	f.writing.Store(true)
	defer func() {
		f.heard.Store(time.Now().UnixNano()) // before silent looks at it again
		f.writing.Store(false)
	}()
	return write()
}

// silent looks, a limit after the last look, whether the worker is there.
func (f *flight) silent() {
	f.mu.Lock()
	c, w := f.conn, f.worker
	f.mu.Unlock()
	if c == nil {
		return
	}
	writing := f.writing.Load() // before heard, which changes first
	now := time.Now()
	mine, its := now.Sub(time.Unix(0, f.heard.Load())), now.Sub(time.Unix(0, w.heard.Load()))
	var why error
	switch {
	case writing || mine < f.limit:
	case f.probe != nil:
		why = f.probe(w)
	case its >= f.limit || mine >= stallFactor*f.limit:
		why = errStalled
	}
	if why != nil {
		f.stall(c, fmt.Errorf("%w: for %v", errStalled, mine.Round(time.Second)))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == c {
		f.timer.Reset(max(f.limit-mine, f.limit/4, time.Millisecond))
	}
}

// stall stops the request if it is still on the connection.
func (f *flight) stall(c net.Conn, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != c {
		return
	}
	if f.cause == nil {
		f.cause = why
	}
	c.Close()
}
