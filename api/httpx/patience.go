package httpx

import (
	"net/http"
	"os"
	"time"
)

const (
	// ReadMax is how long a client may take to read the next patienceBytes of an answer.
	ReadMax = 30 * time.Second
	// patienceBytes are written at once. So each answer is read at more than 2 KiB/s, or is ended.
	patienceBytes = 64 << 10
)

// Patience is what a server has with clients that do not read their answers. Such a client would hold
// a goroutine, buffers, and what else the handler has, for as long as it liked. The time counts only
// while something is being written: a stream without anything to send may last for ever, and so may one
// that is read slowly.
//
// Over HTTP/2 the stream is reset and others of its connection go on, unless the client reads nothing
// of the connection at all. Then that is closed, as a connection of HTTP/1.1 is.
type Patience struct {
	// Max is how long a client may take to read the next 64 KiB, ReadMax if zero. The buffers of the
	// kernel count as read.
	Max time.Duration
	// Over is called when an answer is ended. It must not write to the client. The last 4 KiB of an
	// answer are written when its handler has returned: they have the same time, and end without
	// this call. Optional.
	Over func(*http.Request)
}

// NewServer is the NewServer of the package, with this patience.
func (p Patience) NewServer(h http.Handler) *http.Server {
	if p.Max <= 0 {
		p.Max = ReadMax
	}
	s := newServer(p.handler(h))
	// A reset cannot be sent to a client that reads nothing of the connection. Streams come first.
	s.HTTP2.WriteByteTimeout = p.Max + p.Max/4
	return s
}

// handler gives each answer of h its time.
func (p Patience) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &timed{ResponseWriter: w, control: http.NewResponseController(w), request: r, patience: &p}
		if r.ProtoMajor < 2 {
			_ = t.control.SetWriteDeadline(time.Time{}) // the connection has that of the answer before
		}
		defer t.rest()
		h.ServeHTTP(t, r)
	})
}

// timed is an answer whose parts are written in time, or not at all.
type timed struct {
	http.ResponseWriter
	control  *http.ResponseController
	request  *http.Request
	patience *Patience
	// timer runs while something is being written; nil before that. Setting a deadline before each
	// write, and none after it, would cost more: over HTTP/2 another goroutine is asked.
	timer *time.Timer
	// fired has a value when the timer has done what it does, and over is set then.
	fired chan struct{}
	over  bool
}

// Unwrap is for http.ResponseController.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write writes parts, each of which has the time.
func (t *timed) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+patienceBytes)]
		m, err := t.write(part)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

func (t *timed) write(part []byte) (int, error) {
	if t.over {
		return 0, os.ErrDeadlineExceeded
	}
	t.begin()
	defer t.end()
	return t.ResponseWriter.Write(part)
}

// Flush implements http.Flusher.
func (t *timed) Flush() { _ = t.FlushError() } // the next write tells

// FlushError is Flush for http.ResponseController.
func (t *timed) FlushError() error {
	if t.over {
		return os.ErrDeadlineExceeded
	}
	t.begin()
	defer t.end()
	return t.control.Flush()
}

func (t *timed) begin() {
	if t.timer == nil {
		t.fired = make(chan struct{}, 1)
		t.timer = time.AfterFunc(t.patience.Max, t.giveUp)
		return
	}
	t.timer.Reset(t.patience.Max)
}

// end waits for giveUp if that has begun: with HTTP/2, setting a deadline panics once the handler has
// returned.
func (t *timed) end() {
	if !t.timer.Stop() {
		<-t.fired
		t.over = true
	}
}

// giveUp ends a write.
func (t *timed) giveUp() {
	_ = t.control.SetWriteDeadline(time.Now()) // a writer without deadlines is one of a test
	if t.patience.Over != nil {
		t.patience.Over(t.request)
	}
	t.fired <- struct{}{}
}

// rest gives what net/http writes after the handler its time.
func (t *timed) rest() {
	if !t.over {
		_ = t.control.SetWriteDeadline(time.Now().Add(t.patience.Max)) // as above
	}
}
