package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// answerBytesMax bounds an answer that is not a stream.
	answerBytesMax = 64 << 20
	// drainLimit is how long the end of an answer may take after its last event.
	drainLimit = time.Second
	// keptBytes is how large a buffer may be to be used again: a small request that gets a large one
	// has it in memory all the same.
	keptBytes = 64 << 10
	// fixedBytes is more than the words of a message that are always the same, and its length.
	fixedBytes = 128
)

// buffers are used again, so that a request allocates little.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// answer is a whole answer of a worker.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// errCannotContinue: the engine of a worker cannot go on behind the beginning of an answer.
var errCannotContinue = errors.New("its engine cannot go on behind the beginning of this answer")

// attempt sends the request to a worker and the client what comes back. It returns nil once the
// client has all of it.
func (c *call) attempt(to target) error {
	c.gen.at(to.dialect)
	c.gen.again = c.retried == to.worker
	if c.gen.joined && !c.gen.continuable() {
		return errCannotContinue
	}
	c.rename()
	if err := c.stoppable(); err != nil {
		return cmp.Or(c.f.leave(), err)
	}
	con, resp, err := c.send(to) //nolint:bodyclose // the body ends with its connection, which is closed or drained below
	if err == nil {
		err = c.deliver(to, con, resp)
	}
	stopped := c.f.leave()
	reusable := err == nil && stopped == nil && con != nil && c.drained(to.pool, con, resp)
	if con != nil && !reusable {
		con.Close()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errClientGone):
		return err
	case errors.Is(stopped, errStalled):
		return &workerError{err: stopped, hung: true}
	case stopped != nil:
		return stopped
	}
	return err
}

// stoppable has a suspension stop the request from now on, if it can go on later. An error is why it
// stops at once: it was suspended before, when nobody could stop it.
func (c *call) stoppable() error {
	if !c.b.stream || !c.gen.fixed || !c.gen.continuable() {
		return nil
	}
	if missed := c.f.unpin(); missed != nil && c.gen.held() {
		return missed
	}
	return nil
}

// rename gives the request the name that it has in the next engine. It is another one each time, so
// that a late call to end the request before does not end this one. No name begins with another:
// SGLang ends all requests whose names begin with what it is told.
func (c *call) rename() {
	c.attempts++
	c.name = c.prefix + strconv.FormatUint(c.attempts, 36) + "-"
}

// compose writes the request for a worker.
func (c *call) compose(to target) {
	ch := changes{b: c.b}
	ch.set(fModel, to.model)
	if to.assigned {
		if p := to.dialect.priority(to.priority); p != nil {
			ch.set(fPriority, p)
		}
	}
	if to.dialect == sgLang && c.b.end != responses {
		ch.set(fRID, []byte(`"`+c.name+c.rid+`"`))
	}
	if c.b.stream && c.b.end != responses && (!c.b.usage || c.gen.each && !c.b.eachUsage) {
		ch.set(fStreamOptions, c.b.streamOptions(c.gen.each))
	}
	if c.gen.joined {
		c.gen.resume(&ch)
	}
	edits := ch.done()
	length, query := editedLen(c.b.raw, edits), c.r.URL.RawQuery
	m := slices.Grow(c.message[:0], fixedBytes+len(to.pool.base)+len(query)+len(to.pool.host)+len(c.header)+len(c.name)+length)
	m = append(m, "POST "...)
	m = append(m, to.pool.base...)
	m = append(m, c.b.end.path()...)
	if query != "" {
		m = append(append(m, '?'), query...)
	}
	m = append(m, " HTTP/1.1\r\nHost: "...)
	m = append(m, to.pool.host...)
	m = append(m, "\r\n"...)
	m = append(m, c.header...)
	m = append(m, "X-Request-Id: "...)
	m = append(m, c.name...)
	m = append(m, "\r\nContent-Length: "...)
	m = strconv.AppendInt(m, int64(length), 10)
	m = append(m, "\r\n\r\n"...)
	c.message = edited(m, c.b.raw, edits)
}

// send sends the request and waits for the header of the answer. A connection that was closed
// while it was idle is not the worker's fault.
func (c *call) send(to target) (*conn, *http.Response, error) {
	buf := buffers.Get().(*[]byte)
	c.message = (*buf)[:0]
	defer func() {
		*buf = c.message[:0]
		c.message = nil
		putBuffer(buf)
		c.share.drop(ofMessage)
	}()
	c.compose(to)
	// What the client has of a stream is not thrown away because of other requests.
	if err := c.share.hold(ofMessage, cap(c.message)); err != nil && !c.wrote {
		return nil, nil, err
	}
	for fresh := false; ; fresh = true {
		con, err := to.pool.get(c.r.Context(), fresh)
		if err != nil {
			if c.r.Context().Err() != nil {
				err = errClientGone
			}
			return nil, nil, &workerError{err: err}
		}
		if err := c.f.use(con); err != nil {
			return con, nil, err
		}
		resp, err := con.exchange(c.message)
		switch {
		case err == nil:
			c.f.hear()
			return con, resp, nil
		case !errors.Is(err, errStale) || fresh:
			return con, nil, &workerError{err: err}
		}
		// Whoever stopped the request closed the connection as well.
		stopped := c.f.leave()
		if stopped == nil {
			stopped = c.stoppable()
		}
		if stopped != nil {
			c.f.interrupt(stopped)
			return con, nil, stopped
		}
		con.Close()
		c.rename() // it may have arrived there all the same
		c.compose(to)
	}
}

// deliver gives the client what a worker answers.
func (c *call) deliver(to target, con *conn, resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == "text/event-stream" {
		return c.stream(to, con, resp)
	}
	raw, err := c.readAll(resp)
	if err != nil {
		return &workerError{err: err}
	}
	a := &answer{resp.StatusCode, resp.Header, raw}
	switch {
	case a.status >= 500 && a.status != http.StatusNotImplemented:
		return &workerError{err: fmt.Errorf("status %d: %s", a.status, excerpt(raw)), answer: a}
	case c.wrote:
		return fmt.Errorf("%w: status %d: %s", errCannotContinue, a.status, excerpt(raw))
	case a.status == http.StatusOK && c.gen.cutShort(raw):
		return errAborted
	}
	c.whole(a)
	return nil
}

// readAll reads an answer that is not a stream.
func (c *call) readAll(resp *http.Response) ([]byte, error) {
	raw, err := c.share.read(heard{resp.Body, c.f}, ofAnswer, resp.ContentLength, answerBytesMax)
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("the answer has more than %d MiB", answerBytesMax>>20)
	}
	return raw, err
}

// heard notes each part of an answer that arrives.
type heard struct {
	r io.Reader
	f *flight
}

func (h heard) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 {
		h.f.hear()
	}
	return n, err
}

// whole sends the client a whole answer.
func (c *call) whole(a *answer) {
	c.begin(a.header, a.status)
	if a.status == http.StatusOK {
		c.gen.readWhole(a.body)
	}
	_, _ = c.w.Write(a.body) // the client has it, or is gone
}

// cutShort reports whether a whole answer is only what the engine had when its policy was suspended.
func (g *generation) cutShort(raw []byte) bool {
	if g.held == nil || !g.held() {
		return false
	}
	read := generation{}
	read.readWhole(raw)
	return string(read.finish) == "abort"
}

// readWhole reads the usage and the reason of the end out of a whole answer.
func (g *generation) readWhole(raw []byte) {
	g.done = true
	for m := object(raw, 0); m.next(); {
		switch string(m.key) {
		case "usage":
			if u, ok := readUsage(raw, m.val); ok {
				g.prompt, g.now = u.prompt, u.completion
			}
		case "status":
			if inside, ok := isString(m.val.of(raw)); ok {
				g.finish = append(g.finish[:0], inside...)
			}
		case "choices":
			for e := array(raw, m.val.start); e.next(); {
				for in := object(raw, e.val.start); in.next(); {
					if inside, ok := isString(in.val.of(raw)); ok && string(in.key) == "finish_reason" {
						g.finish = append(g.finish[:0], inside...)
					}
				}
			}
		}
	}
}

// begin sends the header of the answer.
func (c *call) begin(h http.Header, status int) {
	own := c.w.Header()
	for name, values := range h {
		if !ownHeader(name) || name == "Content-Encoding" {
			own[name] = values
		}
	}
	own["Rota-Worker"] = []string{c.f.worker.name}
	c.wrote, c.status = true, status
	c.w.WriteHeader(status)
}

// stream passes events on as they arrive. What arrives together is sent together.
func (c *call) stream(to target, con *conn, resp *http.Response) error {
	in, out := buffers.Get().(*[]byte), buffers.Get().(*[]byte)
	e := events{r: resp.Body, buf: (*in)[:0]}
	c.out = (*out)[:0]
	defer func() {
		*in, *out = e.buf[:0], c.out[:0]
		c.out = nil
		putBuffer(in)
		putBuffer(out)
		c.share.drop(ofEvents)
	}()
	for {
		// Until what the client gets now is known, nobody knows either whether the request can go on
		// later.
		if err := cmp.Or(c.f.pin(), c.holdStream(&e)); err != nil {
			return err
		}
		if err := c.relay(&e, resp); err != nil {
			return err
		}
		if c.gen.done {
			c.status = cmp.Or(c.gen.refused, c.status)
			return nil
		}
		if err := c.stoppable(); err != nil {
			return err
		}
		err := e.fill()
		switch {
		case err == nil:
			c.f.hear()
		case errors.Is(err, io.EOF) && c.gen.finished():
			c.gen.done = true // this engine says no more
			return nil
		default:
			return &workerError{err: fmt.Errorf("its stream broke: %w", err)}
		}
	}
}

// holdStream counts what the stream has in memory.
func (c *call) holdStream(e *events) error {
	return cmp.Or(c.share.hold(ofEvents, cap(e.buf)+cap(c.out)), c.share.hold(ofText, c.gen.size()))
}

// relay sends the client all events that are there.
func (c *call) relay(e *events, resp *http.Response) error {
	var failed error
	for failed == nil && !c.gen.done {
		ev, ok := e.next()
		if !ok {
			break
		}
		before := len(c.out)
		if c.out, failed = c.gen.add(c.out, ev); len(c.out) > before {
			c.sent++
		}
	}
	if len(c.out) > 0 && !c.wrote {
		c.begin(resp.Header, http.StatusOK)
	}
	if err := c.f.toClient(c.flush); err != nil {
		return err
	}
	if errors.Is(failed, errWorkerSays) {
		return &workerError{err: failed}
	}
	return failed
}

func putBuffer(b *[]byte) {
	if cap(*b) <= keptBytes {
		buffers.Put(b)
	}
}

// drained keeps the connection if the answer is at its end, or puts it aside until it is, and
// reports whether it did. The client does not wait for that.
func (c *call) drained(p *pool, con *conn, resp *http.Response) bool {
	if resp.Close {
		return false
	}
	if con.br.Buffered() > 0 || resp.Body == http.NoBody || resp.ContentLength >= 0 {
		return drain(p, con, resp)
	}
	go func() {
		if !drain(p, con, resp) {
			con.Close()
		}
	}()
	return true
}

// drain reads the rest of an answer, of which there is no more than the end.
func drain(p *pool, con *conn, resp *http.Response) bool {
	_ = con.SetReadDeadline(time.Now().Add(drainLimit))
	if n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)); err != nil || n == 4096 {
		return false
	}
	if con.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	p.put(con)
	return true
}
