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
	"os/exec"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/backoff"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// OfferCommand is the name of the hidden command that reads an Offer as JSON and writes an Offered.
// Clients are a process of their own, so that its CPU time and that of simulated nodes are apart.
const OfferCommand = "overload-clients"

// Offer says what clients submit.
type Offer struct {
	Addr string `json:"addr"`
	// Clients have at most one request under way each, with Batch actions of Size bytes.
	Clients, Batch, Size int
	// PerSecond is how many actions all clients together want to submit; 0: each submits
	// again as soon as it is answered.
	PerSecond float64
	Duration  time.Duration
	// Impatient clients repeat a refused request at once, and do not wait as it is asked of them.
	Impatient bool
}

// Offered is what became of an offer in the measured time, which begins after a second.
type Offered struct {
	// Accepted and Refused requests, and Failed ones, which were answered neither way.
	// Unsent requests were due while their client had another one under way.
	Accepted, Refused, Failed, Unsent int
	// Answer is how long accepted requests took, Refusal how long refused ones, and Until how
	// long it took from the first try of a request until it was accepted.
	Answer, Refusal, Until Latency
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
	if o.Clients < 1 || o.Batch < 1 || o.Duration <= 0 {
		return errors.New("an offer needs clients, actions and a duration")
	}
	return json.NewEncoder(out).Encode(o.submit(ctx))
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

func (o Offer) submit(ctx context.Context) Offered {
	var c outcomes
	c.from = time.Now().Add(warmUp)
	end := c.from.Add(o.Duration)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	services := actionServices(min(o.Clients, 32), o.Addr)
	specs := slices.Repeat([]*rotav1.ActionSpec{paddedSpec(o.Size)}, o.Batch)
	var wg sync.WaitGroup
	for i := range o.Clients {
		wg.Go(func() { o.client(ctx, services[i%len(services)], specs, &c) })
	}
	wg.Wait()
	return c.offered()
}

// client submits requests as they become due, one after the other.
func (o Offer) client(ctx context.Context, service rotav1connect.ActionServiceClient, specs []*rotav1.ActionSpec, c *outcomes) {
	interval := time.Duration(0)
	if o.PerSecond > 0 {
		interval = time.Duration(float64(o.Clients*o.Batch) / o.PerSecond * float64(time.Second))
	}
	due := time.Now()
	if interval > 0 {
		due = due.Add(rand.N(interval))
	}
	for backoff.Sleep(ctx, time.Until(due)) == nil {
		o.persist(ctx, service, specs, c)
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

// persist repeats one request until it is accepted, with the pauses of package client.
func (o Offer) persist(ctx context.Context, service rotav1connect.ActionServiceClient, specs []*rotav1.ActionSpec, c *outcomes) {
	own := backoff.Backoff{Least: 10 * time.Millisecond, Most: time.Second}
	first := time.Now()
	for ctx.Err() == nil {
		at := time.Now()
		_, err := service.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: specs})
		if err != nil && (ctx.Err() != nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded) {
			return // the time is over, here or by the server's clock, which has the same deadline
		}
		c.note(at, first, err)
		if err == nil {
			return
		}
		pause := own.Next()
		if after, refused := refusedFor(err); refused {
			pause = after + rand.N(after/2+1)
			if o.Impatient {
				pause = 0
			}
		}
		if backoff.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// refusedFor reports whether an error is a refusal for overload that says when to try again.
func refusedFor(err error) (after time.Duration, refused bool) {
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		return 0, false
	}
	d := codec.Detail(err)
	return d.GetRetryDelay().AsDuration(), d.GetRetryDelay() != nil
}

// outcomes are those of requests that were answered from a time on.
type outcomes struct {
	from time.Time

	mu                        sync.Mutex
	accepted, refusals, until []time.Duration
	delays                    []time.Duration
	failed, unsent            int
	firstError                error
}

// note notes the answer to a try that began at a time, of a request that began with the first.
func (c *outcomes) note(at, first time.Time, err error) {
	now := time.Now()
	if now.Before(c.from) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch after, refused := refusedFor(err); {
	case err == nil:
		c.accepted, c.until = append(c.accepted, now.Sub(at)), append(c.until, now.Sub(first))
	case refused:
		c.refusals, c.delays = append(c.refusals, now.Sub(at)), append(c.delays, after)
	default:
		c.failed++
		c.firstError = cmp.Or(c.firstError, err)
	}
}

func (c *outcomes) miss(n int) {
	c.mu.Lock()
	c.unsent += n
	c.mu.Unlock()
}

func (c *outcomes) offered() Offered {
	o := Offered{
		Accepted: len(c.accepted), Refused: len(c.refusals), Failed: c.failed, Unsent: c.unsent,
		Answer: latency(c.accepted), Refusal: latency(c.refusals), Until: latency(c.until),
	}
	o.RetryAfterMS, _, _ = quantiles(c.delays)
	if c.firstError != nil {
		o.FirstError = c.firstError.Error()
	}
	return o
}
