package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
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
	took   int64 // bytes that it counts for
}

// rewardAnswer is what a replica has answered.
type rewardAnswer struct {
	status int
	header http.Header
	body   []byte
}

// reward serves one call.
func (g *Gateway) reward(w http.ResponseWriter, r *http.Request) {
	c := &rewardCall{g: g, w: w, r: r, name: r.PathValue("name"), status: http.StatusInternalServerError} // what net/http makes of a panic
	defer c.count()
	if no := g.admit(); no != nil {
		c.refuse(no)
		return
	}
	defer func() {
		g.bytes.Add(-c.took)
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
	if c.body, no = c.g.read(c.w, c.r, &c.took); no != nil {
		c.refuse(no)
		return
	}
	c.spec = spec
	rc := http.NewResponseController(c.w)
	_ = rc.SetWriteDeadline(time.Time{}) // it may wait for a replica
	answer, no := c.run()
	c.g.limitWrites(rc)
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
	until := time.Now().Add(c.g.cfg.Wait)
	avoid := uint64(0)
	for failures := uint32(0); ; {
		p, err := c.g.rewards.acquire(c.r.Context(), c.name, avoid, until)
		if err != nil {
			return nil, c.refusal(err, nil)
		}
		began := time.Now()
		answer, o, err := c.try(p)
		if o == unreached {
			c.g.rewards.release(p, o, 0)
			avoid = p.id
			continue
		}
		c.g.rewards.release(p, o, time.Since(began))
		if o == canceled {
			return nil, c.refusal(context.Canceled, nil)
		}
		if o == answered && answer.status < http.StatusInternalServerError {
			return answer, nil
		}
		if failures++; failures > c.spec.GetRetries() {
			if answer != nil {
				return answer, nil
			}
			return nil, c.refusal(err, &o)
		}
		avoid = p.id
		c.g.metrics.rewardRetries.WithLabelValues(c.name).Inc()
	}
}

// try makes the call at one replica, and reads the whole answer.
func (c *rewardCall) try(p *replica) (*rewardAnswer, outcome, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), c.spec.GetTimeout().AsDuration())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.r.Method, p.base+"call/"+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, unanswered, err
	}
	for name, values := range c.r.Header {
		if !ownHeader(name) || name == "Content-Encoding" {
			req.Header[name] = values
		}
	}
	answer, err := exchangeReward(c.g.rewards.http, req)
	switch {
	case c.r.Context().Err() != nil:
		return nil, canceled, err
	case err != nil && ctx.Err() != nil:
		return nil, late, err
	case client.NeverSent(err):
		return nil, unreached, fmt.Errorf("replica %d cannot be called: %w", p.id, err)
	case err != nil:
		return nil, unanswered, err
	}
	switch why := answer.header.Get(httpx.ReplicaHeader); why {
	case "":
		return answer, answered, nil
	case httpx.ReplicaFailed:
		return nil, unanswered, fmt.Errorf("replica %d did not answer: %s", p.id, bytes.TrimSpace(answer.body))
	default:
		return nil, unreached, fmt.Errorf("replica %d cannot be called: %s", p.id, why)
	}
}

func exchangeReward(client *http.Client, req *http.Request) (*rewardAnswer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, rewardAnswerMax+1))
	if err == nil && len(body) > rewardAnswerMax {
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
