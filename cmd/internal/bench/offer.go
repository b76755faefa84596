package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/backoff"
	"rota/api/client"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// OfferCommand is the name of the hidden command that reads an Offer as JSON and writes an Offered.
// Clients are a process of their own, so that its CPU time and that of simulated nodes are apart.
const OfferCommand = "overload-clients"

// Offer says what clients submit.
type Offer struct {
	Addr string `json:"addr"`
	// Clients have at most one request under way each, with Batch actions of Size bytes. They
	// share Programs: a program has one client of package client.
	Clients, Programs, Batch, Size int
	// PerSecond is how many actions all clients together want to submit; 0: each submits
	// again as soon as it is answered.
	PerSecond float64
	Duration  time.Duration
	// Impatient clients repeat a refused request at once, and do not wait as it is asked of them.
	// They are not those of package client.
	Impatient bool
}

// Offered is what became of an offer in the measured time, which begins after a second.
type Offered struct {
	// Calls to the servers. One may have many requests, of which some are accepted.
	Calls int
	// Accepted and Refused requests, and Failed ones, which were answered neither way.
	// Unsent requests were due while their client had another one under way.
	Accepted, Refused, Failed, Unsent int
	// Answer is how long calls took, and Until how long it took from the first try of a request
	// until it was accepted.
	Answer, Until Latency
	// RetryAfterMS is the median delay that refusals asked for.
	RetryAfterMS float64 `json:"retry_after_ms"`
	FirstError   string  `json:"first_error,omitempty"`
}

// Latency is a distribution, in milliseconds.
type Latency struct {
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

func latency(list []time.Duration) (l Latency) {
	l.P50MS, l.P99MS, l.MaxMS = quantiles(list)
	return l
}

// RunOffer is the process of the clients.
func RunOffer(ctx context.Context, in io.Reader, out io.Writer) error {
	var o Offer
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	if o.Clients < 1 || o.Programs < 1 || o.Batch < 1 || o.Duration <= 0 {
		return errors.New("an offer needs clients, programs, actions and a duration")
	}
	done, err := o.submit(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(done)
}

// run has a process of its own submit what is offered.
func (o Offer) run(ctx context.Context, binary string) (done Offered, cpu time.Duration, err error) {
	in, err := json.Marshal(o)
	if err != nil {
		return done, 0, err
	}
	cmd := exec.CommandContext(ctx, binary, "bench", OfferCommand)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		return done, 0, fmt.Errorf("clients: %w", err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return done, used, json.Unmarshal(out, &done)
}

// submitter submits one request until it is accepted, and notes what becomes of it.
type submitter func(ctx context.Context, specs []*rotav1.ActionSpec)

func (o Offer) submit(ctx context.Context) (Offered, error) {
	var c outcomes
	c.from = time.Now().Add(warmUp)
	end := c.from.Add(o.Duration)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	submitters, stop, err := o.programs(&c)
	if err != nil {
		return Offered{}, err
	}
	specs := slices.Repeat([]*rotav1.ActionSpec{paddedSpec(o.Size)}, o.Batch)
	var wg sync.WaitGroup
	for i := range o.Clients {
		wg.Go(func() { o.client(ctx, submitters[i%len(submitters)], specs, &c) })
	}
	wg.Wait()
	stop() // before the outcomes are read: programs note them in the background
	return c.offered(), nil
}

// programs returns what the clients submit with, and what ends it. Programs share connections, at
// most connectionsMax: machines do the same with gateways, and it is not connections that are measured.
func (o Offer) programs(c *outcomes) (list []submitter, stop func(), err error) {
	n := min(o.Clients, o.Programs)
	if o.Impatient {
		for _, service := range actionServices(min(n, connectionsMax), o.Addr) {
			list = append(list, func(ctx context.Context, specs []*rotav1.ActionSpec) { persist(ctx, service, specs, c) })
		}
		return list, func() {}, nil
	}
	var clients []*client.Client
	stop = func() {
		for _, one := range clients {
			one.Close()
		}
	}
	connections := make([]connect.HTTPClient, min(n, connectionsMax))
	for i := range connections {
		connections[i] = &timedHTTP{HTTPClient: httpx.NewClient(nil), c: c}
	}
	for i := range n {
		one, err := client.New(client.Config{
			Addrs: []string{o.Addr}, RetryFor: o.Duration + time.Hour/2, HTTP: connections[i%len(connections)],
			Throttled: func(t client.Throttled) { c.refused((t.Sent-t.Accepted)/o.Batch, t.Delay) },
		})
		if err != nil {
			stop()
			return nil, nil, err
		}
		clients = append(clients, one)
		list = append(list, func(ctx context.Context, specs []*rotav1.ActionSpec) {
			first := time.Now()
			_, err := one.Submit(ctx, specs...)
			if ctx.Err() == nil {
				c.note(first, err)
			}
		})
	}
	return list, stop, nil
}

const connectionsMax = 32

// timedHTTP notes how long calls take.
type timedHTTP struct {
	connect.HTTPClient
	c *outcomes
}

// Do makes a call.
func (h *timedHTTP) Do(req *http.Request) (*http.Response, error) {
	at := time.Now()
	resp, err := h.HTTPClient.Do(req)
	if err == nil && path.Base(req.URL.Path) == "BatchSubmitActions" {
		h.c.called(at)
	}
	return resp, err
}

// client submits requests as they become due, one after the other.
func (o Offer) client(ctx context.Context, submit submitter, specs []*rotav1.ActionSpec, c *outcomes) {
	interval := time.Duration(0)
	if o.PerSecond > 0 {
		interval = time.Duration(float64(o.Clients*o.Batch) / o.PerSecond * float64(time.Second))
	}
	due := time.Now()
	if interval > 0 {
		due = due.Add(rand.N(interval))
	}
	for backoff.Sleep(ctx, time.Until(due)) == nil {
		submit(ctx, specs)
		if interval == 0 {
			continue
		}
		due = due.Add(interval)
		if missed := int(time.Since(due) / interval); missed > 0 {
			c.miss(missed)
			due = due.Add(time.Duration(missed) * interval)
		}
	}
}

// persist repeats one request until it is accepted: at once if it is refused, whatever a refusal says.
func persist(ctx context.Context, service rotav1connect.ActionServiceClient, specs []*rotav1.ActionSpec, c *outcomes) {
	own := backoff.Backoff{Least: 10 * time.Millisecond, Most: time.Second}
	first := time.Now()
	for ctx.Err() == nil {
		at := time.Now()
		_, err := service.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: specs})
		if err != nil && (ctx.Err() != nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded) {
			return // the time is over, here or by the server's clock, which has the same deadline
		}
		c.called(at)
		if after, refused := codec.Overloaded(err); refused {
			c.refused(1, after)
			continue
		}
		c.note(first, err)
		if err == nil || backoff.Sleep(ctx, own.Next()) != nil {
			return
		}
	}
}

// outcomes are those of requests that were answered from a time on.
type outcomes struct {
	from time.Time

	mu             sync.Mutex
	answers, until []time.Duration
	delays         []time.Duration
	refusals       int
	failed, unsent int
	firstError     error
}

// measured locks the outcomes if the time that is measured has begun.
func (c *outcomes) measured() bool {
	if time.Now().Before(c.from) {
		return false
	}
	c.mu.Lock()
	return true
}

// called notes a call that began at a time and was answered.
func (c *outcomes) called(at time.Time) {
	if c.measured() {
		c.answers = append(c.answers, time.Since(at))
		c.mu.Unlock()
	}
}

// refused notes that requests were refused for overload, with a delay.
func (c *outcomes) refused(n int, after time.Duration) {
	if c.measured() {
		c.refusals += n
		c.delays = append(c.delays, after)
		c.mu.Unlock()
	}
}

// note notes that a request that began at a time was accepted, or failed.
func (c *outcomes) note(first time.Time, err error) {
	if !c.measured() {
		return
	}
	defer c.mu.Unlock()
	if err != nil {
		c.failed++
		c.firstError = cmp.Or(c.firstError, err)
		return
	}
	c.until = append(c.until, time.Since(first))
}

func (c *outcomes) miss(n int) {
	c.mu.Lock()
	c.unsent += n
	c.mu.Unlock()
}

func (c *outcomes) offered() Offered {
	o := Offered{
		Calls: len(c.answers), Accepted: len(c.until), Refused: c.refusals, Failed: c.failed, Unsent: c.unsent,
		Answer: latency(c.answers), Until: latency(c.until),
	}
	o.RetryAfterMS, _, _ = quantiles(c.delays)
	if c.firstError != nil {
		o.FirstError = c.firstError.Error()
	}
	return o
}
