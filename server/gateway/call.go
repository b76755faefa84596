package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// movesMax is how often a request goes on after a worker failed it.
	movesMax = 8
	// answersMax is how many workers may answer a request with a 5xx: after that it is the
	// request, and the client gets the answer.
	answersMax = 2
	// retryPause is before the same worker is tried again.
	retryPause = 50 * time.Millisecond
)

// call is one request of a client from its first byte to its last.
type call struct {
	g   *Gateway
	w   http.ResponseWriter
	r   *http.Request
	rc  *http.ResponseController
	b   *body
	gen generation
	f   *flight
	// prefix begins the names of the request in engines, name is the one that it has now, rid how
	// a client has called it itself.
	prefix, name, rid string
	attempts          uint64
	// header are the lines that are passed on, with the line of the API key.
	header []byte
	// message is the request to a worker while it is sent, out what the client gets next.
	message, out []byte
	share        *share
	wrote        bool // the header of the answer
	sent         int  // events
	status       int  // of the answer, for metrics
	toolTime     time.Duration
	avoid        failedAt
	retried      *worker // was tried again
	moves        int
	answers      int
	quiet        quiet
}

// workerError is a failure of a worker.
type workerError struct {
	err error
	// answer is what it answered, if it did with a status of 5xx.
	answer *answer
	// hung: trying the same worker again would take as long.
	hung bool
}

func (e *workerError) Error() string { return e.err.Error() }
func (e *workerError) Unwrap() error { return e.err }

// run brings the request to an end.
func (c *call) run() {
	ctx := c.r.Context()
	defer context.AfterFunc(ctx, func() { c.f.interrupt(errClientGone) })()
	defer c.endComments()
	if before := c.g.table.turnBegins(c.f.id); !before.IsZero() {
		c.toolTime = time.Since(before)
	}
	for {
		to, err := c.g.table.acquire(ctx, c.f, c.avoid, time.Now().Add(c.g.cfg.Wait))
		if ctx.Err() != nil {
			c.status = statusClientGone
			if err == nil {
				c.g.table.release(c.f)
			}
			return
		}
		if err != nil {
			c.refuse(refusalOf(err, c.subject()))
			return
		}
		began := time.Now()
		err = c.visit(to)
		over := c.settle(to, err)
		c.report(to, time.Since(began), over && (err == nil || c.complete()))
		if over {
			return
		}
		c.share.drop(ofAnswer)
	}
}

// visit is one attempt at a worker. Whatever becomes of it, the worker does not count the request
// any more.
func (c *call) visit(to target) error {
	c.g.reports.begins(c.f.id, to.name)
	returned := false
	defer func() {
		c.g.table.release(c.f)
		if !returned { // it panics, and nothing else says that it generates no more
			c.g.reports.ends(c.f.id, to.name, portion{})
		}
	}()
	err := c.attempt(to)
	returned = true
	return err
}

// subject is the request in a sentence.
func (c *call) subject() string {
	if c.f.id == 0 {
		return "the request"
	}
	return "trajectory " + strconv.FormatUint(c.f.id, 10)
}

// report notes what a worker has generated.
func (c *call) report(to target, took time.Duration, ended bool) {
	p := portion{tokens: c.gen.now, generating: took, toolTime: c.toolTime}
	c.toolTime = 0
	if ended && c.status < 400 {
		p.ended, p.finish, p.context = true, string(c.gen.finish), c.gen.prompt
		c.g.table.turnEnds(c.f.id)
	}
	c.g.metrics.tokens.Add(float64(p.tokens))
	c.g.reports.ends(c.f.id, to.name, p)
	c.gen.workerEnds()
}

// complete reports whether the client has all of an answer.
func (c *call) complete() bool { return c.gen.done }

// settle decides what becomes of the request after a worker: true means that it is over.
func (c *call) settle(to target, err error) bool {
	var failure *workerError
	switch {
	case err == nil:
		return true
	case errors.Is(err, errClientGone):
		c.status = statusClientGone
		c.g.abort(to, c)
		return true
	case errors.Is(err, errEnded):
		c.g.abort(to, c)
		c.refuse(refusalOf(errEnded, c.subject()))
		return true
	case errors.Is(err, errSuspended), errors.Is(err, errPublishing):
		c.g.abort(to, c)
		c.g.metrics.moves.WithLabelValues("suspended").Inc()
		return c.finishOr("is suspended, and the answer cannot go on later from where it is")
	case errors.Is(err, errAborted):
		c.g.metrics.moves.WithLabelValues("suspended").Inc()
		return c.finishOr("is suspended, and the answer cannot go on later from where it is")
	case errors.Is(err, errBytes):
		c.g.abort(to, c)
		c.refuse(tooManyBytes)
		return true
	case errors.As(err, &failure):
		return c.failed(to, failure)
	case errors.Is(err, errCannotContinue):
		return c.cannotContinue("cannot go on at worker " + to.name + ": " + err.Error())
	}
	c.refuse(&refusal{status: http.StatusBadGateway, code: "gateway", message: "the gateway cannot use worker " + to.name + ": " + err.Error()})
	return true
}

// failed deals with a failure of a worker.
func (c *call) failed(to target, e *workerError) bool {
	if e.hung {
		c.g.abort(to, c)
	}
	if !c.gen.began && c.retried != to.worker && !e.hung {
		c.retried = to.worker
		c.g.metrics.moves.WithLabelValues("retried").Inc()
		sleep(c.r.Context(), nil, retryPause)
		return false
	}
	if e.answer != nil {
		c.answers++
	}
	if e.answer != nil && c.answers >= answersMax && !c.wrote {
		c.whole(e.answer)
		return true
	}
	c.g.failure(to, e)
	c.g.metrics.moves.WithLabelValues("failed").Inc()
	c.avoid = failedAt{to.name, to.revivals}
	if c.moves++; c.moves > movesMax {
		c.refuse(&refusal{status: http.StatusBadGateway, code: "worker_failed", retryAfter: 5,
			message: fmt.Sprintf("%d workers have failed the request, the last one was %s: %v", c.moves, to.name, e.err)})
		return true
	}
	return c.finishOr(fmt.Sprintf("cannot go on from where it is, after worker %s failed: %v", to.name, e.err))
}

// finishOr ends the answer if it is complete but for its end, or cannot go on; why says the latter.
// False means that it goes on at a worker.
func (c *call) finishOr(why string) bool {
	g := &c.gen
	switch {
	case g.done:
		return true
	case g.finished() && !g.other && g.b.end != responses && g.b.choices() == 1:
		c.conclude()
		return true
	case !g.continuable():
		return c.cannotContinue(why)
	case g.began && !g.left(g.before+g.now):
		c.conclude()
		return true
	}
	return false
}

// cannotContinue ends the answer with an error, and returns true.
func (c *call) cannotContinue(why string) bool {
	c.refuse(&refusal{status: http.StatusBadGateway, code: "cannot_continue", message: c.subject() + " " + why + "; send the request again"})
	return true
}

// conclude sends the end of a stream whose worker failed when only the end was missing.
func (c *call) conclude() {
	c.out = c.gen.conclusion(c.out[:0])
	c.gen.done = true
	_ = c.flush() // the client is gone, or has it all
}

// refuse answers with an error, or ends the stream with one.
func (c *call) refuse(r *refusal) {
	c.g.metrics.refused.WithLabelValues(r.code).Inc()
	c.status = r.status
	if !c.wrote {
		c.wrote = true
		r.answer(c.w)
		return
	}
	c.out = append(c.out[:0], r.event(c.b.end, c.sent)...)
	_ = c.flush() // the client is gone, or knows
}

// flush sends the client what is in out. The server bounds the time for it: a client that does not read
// keeps a place in an engine.
func (c *call) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.quiet.mu.Lock()
	defer c.quiet.mu.Unlock()
	err := c.write(c.out)
	c.out = c.out[:0]
	if err == nil {
		c.said()
	}
	return err
}

// write sends the client something at once.
func (c *call) write(out []byte) error {
	_, err := c.w.Write(out)
	if err == nil {
		err = c.rc.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

// passedOn are the lines of a header that a worker gets: all but those about the connection, and
// those that the client says are (Connection: NAME), the client's key and what the gateway sets
// itself.
func passedOn(h http.Header, key string) []byte {
	out := make([]byte, 0, 512)
	var hop map[string]bool
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if hop == nil {
				hop = map[string]bool{}
			}
			hop[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	for name, values := range h {
		if ownHeader(name) || hop[name] && name != "Content-Type" {
			continue
		}
		for _, v := range values {
			out = append(out, name...)
			out = append(out, ": "...)
			out = append(out, v...)
			out = append(out, "\r\n"...)
		}
	}
	if key != "" {
		out = append(out, "Authorization: Bearer "...)
		out = append(out, key...)
		out = append(out, "\r\n"...)
	}
	return out
}

// ownHeader reports whether a line of a header is between two ends of one connection, or the
// gateway's to set.
func ownHeader(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding", "Accept-Encoding", "Expect", "Host",
		"Authorization", "Cookie", "X-Request-Id", trajectoryHeader:
		return true
	}
	return strings.HasPrefix(name, "Rota-")
}
