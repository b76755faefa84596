package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
)

// rewardAnswerMax is the largest answer of a replica. It is read whole before any of it is
// delivered, so that a call can be tried again until then.
const rewardAnswerMax = 64 << 20

// rewardCall is one call of a reward function.
type rewardCall struct {
	g      *Gateway
	w      http.ResponseWriter
	r      *http.Request
	name   string
	path   string // at the replica, escaped, with the query
	body   []byte
	spec   *rotav1.RewardSpec
	status int
	share  *share
}

// rewardAnswer is what a replica has answered.
type rewardAnswer struct {
	status int
	header http.Header
	body   []byte
}

// rewardTry is one try of a call: the answer of the replica, or what else became of it and why.
type rewardTry struct {
	answer *rewardAnswer
	outcome
	err error
}

// failed reports whether it counts as a try.
func (t *rewardTry) failed() bool {
	switch t.outcome {
	case answered:
		return t.answer.status >= http.StatusInternalServerError
	case unanswered, late:
		return true
	}
	return false
}

// reward serves one call.
func (g *Gateway) reward(w http.ResponseWriter, r *http.Request) {
	c := &rewardCall{g: g, w: w, r: r, name: r.PathValue("name"), status: http.StatusInternalServerError} // what net/http makes of a panic
	defer c.count()
	if no := g.admit(); no != nil {
		c.refuse(no)
		return
	}
	c.share = g.newShare()
	defer func() {
		c.share.end()
		g.requests.Add(-1)
	}()
	c.admitted()
}

// count counts a call that has ended, unless its function was removed meanwhile.
func (c *rewardCall) count() {
	c.g.metrics.requests.WithLabelValues("/v1/rewards", strconv.Itoa(c.status)).Inc()
	if c.spec != nil && c.g.rewards.spec(c.name) != nil {
		c.g.rewards.count(c.name, c.status >= http.StatusInternalServerError || c.status == http.StatusTooManyRequests)
		c.g.metrics.rewardCalls.WithLabelValues(c.name, strconv.Itoa(c.status/100)+"xx").Inc()
	}
}

func (c *rewardCall) refuse(no *refusal) { c.g.refuse(c.w, no, &c.status) }

// admitted serves a call that was counted.
func (c *rewardCall) admitted() {
	_, no := c.g.keys.authorize(c.r)
	if no == nil {
		no = checkQuery(c.r.URL.RawQuery)
	}
	if no != nil {
		c.refuse(no)
		return
	}
	spec := c.g.rewards.spec(c.name)
	if spec == nil {
		c.refuse(c.refusal(c.g.rewards.missing(), nil))
		return
	}
	c.path = c.pathAt(spec)
	if c.body, no = c.g.read(c.w, c.r, c.share); no != nil {
		c.refuse(no)
		return
	}
	c.spec = spec
	answer, no := c.run()
	switch {
	case no != nil && no.status == statusClientGone:
		c.status = no.status
	case no != nil:
		c.refuse(no)
	default:
		c.deliver(answer)
	}
}

// pathAt is where the call goes at the replica: what follows the name in the URL, or the path of
// the function.
func (c *rewardCall) pathAt(spec *rotav1.RewardSpec) string {
	path := spec.GetPath()
	_, rest, _ := strings.Cut(strings.TrimPrefix(c.r.URL.EscapedPath(), "/v1/rewards/"), "/")
	if rest != "" {
		path = "/" + rest
	}
	if query := c.r.URL.RawQuery; query != "" {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		path += sep + query
	}
	return strings.TrimPrefix(path, "/")
}

// run tries the call until a replica answers, or it has failed too often. A replica that has not
// got the call has not failed it.
func (c *rewardCall) run() (*rewardAnswer, *refusal) {
	w, err := c.g.rewards.enter(c.name)
	if err != nil {
		return nil, c.refusal(err, nil)
	}
	until := time.Now().Add(c.g.cfg.Wait)
	var last *rewardTry // that failed
	for failures := uint32(0); ; {
		p, err := c.g.rewards.await(c.r.Context(), w, until)
		switch {
		case err != nil && last != nil && errors.Is(err, errNoReplica):
			return c.result(last)
		case err != nil:
			return nil, c.refusal(err, nil)
		}
		began := time.Now()
		try := c.try(p)
		took := time.Since(began)
		if try.outcome == unreached {
			took = 0
		}
		if try.failed() {
			failures, last = failures+1, try
		}
		if try.outcome != unreached && (!try.failed() || failures > c.spec.GetRetries()) {
			c.g.rewards.release(p, try.outcome, took)
			return c.result(try)
		}
		c.g.rewards.again(w, p, try.outcome, took)
		if try.failed() {
			c.g.metrics.rewardRetries.WithLabelValues(c.name).Inc()
			until = time.Now().Add(c.g.cfg.Wait) // the try was no wait
			c.keep(try.answer)
		}
	}
}

// result is what the client gets of a try.
func (c *rewardCall) result(t *rewardTry) (*rewardAnswer, *refusal) {
	switch {
	case t.answer != nil:
		return t.answer, nil
	case t.outcome == canceled:
		return nil, c.refusal(t.err, nil)
	}
	return nil, c.refusal(t.err, &t.outcome)
}

// keep counts an answer that is kept beside the next one.
func (c *rewardCall) keep(a *rewardAnswer) {
	n := 0
	if a != nil {
		n = cap(a.body)
	}
	c.share.drop(ofAnswer)
	_ = c.share.hold(ofFailure, n) // it is here, and the next answer has to fit beside it
}

// try makes the call at one replica, and reads the whole answer.
func (c *rewardCall) try(p *replica) *rewardTry {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.spec.GetTimeout().AsDuration())
	defer cancel()
	var sent atomic.Bool // or some of it
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), c.r.Method, p.base+"call/"+c.path, bytes.NewReader(c.body))
	if err != nil {
		return &rewardTry{outcome: unanswered, err: err}
	}
	for name, values := range c.r.Header {
		if !ownHeader(name) || name == "Content-Encoding" {
			req.Header[name] = values
		}
	}
	answer, err := c.exchange(req)
	switch {
	case c.r.Context().Err() != nil, errors.Is(err, errBytes):
		return &rewardTry{outcome: canceled, err: cmp.Or(err, context.Canceled)}
	case err != nil && !sent.Load(), client.NeverSent(err):
		return &rewardTry{outcome: unreached, err: fmt.Errorf("replica %d cannot be called: %w", p.id, err)}
	case err != nil && ctx.Err() != nil:
		return &rewardTry{outcome: late, err: err}
	case err != nil:
		return &rewardTry{outcome: unanswered, err: err}
	}
	switch why := answer.header.Get(httpx.ReplicaHeader); why {
	case "":
		return &rewardTry{answer: answer}
	case httpx.ReplicaFailed:
		return &rewardTry{outcome: unanswered, err: fmt.Errorf("replica %d did not answer: %s", p.id, bytes.TrimSpace(answer.body))}
	default:
		return &rewardTry{outcome: unreached, err: fmt.Errorf("replica %d cannot be called: %s", p.id, why)}
	}
}

func (c *rewardCall) exchange(req *http.Request) (*rewardAnswer, error) {
	resp, err := c.g.rewards.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := c.share.read(resp.Body, ofAnswer, resp.ContentLength, rewardAnswerMax)
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("the answer has more than %d MiB", rewardAnswerMax>>20)
	}
	return &rewardAnswer{resp.StatusCode, resp.Header, body}, err
}

// deliver sends an answer to the client as the replica gave it.
func (c *rewardCall) deliver(a *rewardAnswer) {
	header := c.w.Header()
	for name, values := range a.header {
		switch name {
		case "Connection", "Keep-Alive", "Transfer-Encoding", "Trailer", "Upgrade", "Content-Length":
		default:
			header[name] = values
		}
	}
	header.Set("Content-Length", strconv.Itoa(len(a.body)))
	c.status = a.status
	c.w.WriteHeader(a.status)
	_, _ = c.w.Write(a.body) // the client has it, or is gone
}

// refusal says in an answer why a call has none. o is what became of its last try; nil: it had
// none.
func (c *rewardCall) refusal(err error, o *outcome) *refusal {
	subject := fmt.Sprintf("reward function %q: ", c.name)
	no := &refusal{status: http.StatusServiceUnavailable, code: "no_replica", retryAfter: 5, message: subject + err.Error() + "; send the call again later"}
	switch {
	case errors.Is(err, errBytes):
		no = tooManyBytes
	case o != nil && *o == late:
		no = &refusal{status: http.StatusGatewayTimeout, code: "replica_late", message: subject + "no replica answered within " + c.spec.GetTimeout().AsDuration().String()}
	case o != nil:
		no = &refusal{status: http.StatusBadGateway, code: "replica_failed", message: subject + err.Error()}
	case c.r.Context().Err() != nil:
		no = &refusal{status: statusClientGone, code: "client_gone", message: subject + "the client went away"}
	case errors.Is(err, errNoReward), errors.Is(err, errRewardRemoved):
		no = &refusal{status: http.StatusNotFound, code: "reward_not_found", message: subject + err.Error()}
	case errors.Is(err, errNoRoutes):
		no.code = "no_routes"
	case errors.Is(err, errRewardsFull):
		no.status, no.code, no.retryAfter = http.StatusTooManyRequests, "queue_full", 1
		if c.spec.GetProtocol() == rotav1.RewardProtocol_REWARD_PROTOCOL_VERL { // its clients give up on 4xx
			no.status = http.StatusServiceUnavailable
		}
	}
	return no
}
