package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// OverloadOptions say how much too much to offer.
type OverloadOptions struct {
	Cluster ClusterOptions
	// Factors of what the cluster takes.
	Factors []float64
	// Duration of each, and of the measurement of what the cluster takes.
	Duration time.Duration
	// Submitters make requests of Batch actions of Size bytes, one after the other, while it is
	// measured what the cluster takes.
	Submitters, Batch, Size int
	// InFlight bounds the requests that wait for an answer under overload: clients have no more
	// connections than that.
	InFlight int
	// Queue is how many actions may be queued.
	Queue int
}

// OverloadStep is what became of one offer. Rates are actions per second.
type OverloadStep struct {
	Factor  float64 `json:"factor"`
	Offered float64 `json:"offered_per_second"`
	// Goodput is what was accepted: the queue is bounded, so as much ends.
	Goodput float64 `json:"goodput_per_second"`
	// GoodputPercent is that of what the cluster takes.
	GoodputPercent float64 `json:"goodput_percent"`
	// Of accepted requests, in milliseconds.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
	// Refused requests said when to try again; Unsent ones found all connections busy; Failed
	// ones were answered neither way.
	Accepted, Refused, Unsent, Failed int
	// RefusedP99MS is how long a refusal took.
	RefusedP99MS float64 `json:"refused_p99_ms"`
	// RetryAfterMS is the median delay that refusals asked for.
	RetryAfterMS float64 `json:"retry_after_ms"`
	// Health during the step: changes of the term, the fewest nodes up, and the slowest answers to
	// linearizable reads, which were made all the time.
	TermChanges uint64  `json:"term_changes"`
	NodesUpMin  uint64  `json:"nodes_up_min"`
	ReadP99MS   float64 `json:"read_p99_ms"`
	FirstError  string  `json:"first_error,omitempty"`
}

// OverloadResult is what overload does to a cluster.
type OverloadResult struct {
	// Capacity is what the cluster takes from clients that wait for each answer.
	Capacity Rate           `json:"capacity"`
	Nodes    int            `json:"nodes"`
	Steps    []OverloadStep `json:"steps"`
}

// Overload measures what a cluster with simulated nodes takes, and then offers it more, at a rate
// that does not depend on its answers.
func Overload(ctx context.Context, o OverloadOptions, each func(OverloadStep)) (*OverloadResult, error) {
	o.Cluster.ServerArgs = []string{"--queue-actions-max", strconv.Itoa(o.Queue)}
	h, err := startHeld(ctx, o.Cluster)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	r := &OverloadResult{Nodes: o.Cluster.SimulatedNodes}
	specs := slices.Repeat([]*rotav1.ActionSpec{paddedSpec(o.Size)}, o.Batch)
	services := actionServices(min(o.InFlight, 32), h.leader)
	if r.Capacity, err = load(ctx, "capacity", o.Submitters, o.Duration, patient(services, specs)); err != nil {
		return nil, err
	}
	for _, factor := range o.Factors {
		s, err := h.overload(ctx, o, factor, r.Capacity.PerSecond, services, specs)
		if err != nil {
			return nil, err
		}
		each(s)
		r.Steps = append(r.Steps, s)
	}
	return r, nil
}

// patient is a client that waits as long as a refusal says, and counts nothing for it.
func patient(services []rotav1connect.ActionServiceClient, specs []*rotav1.ActionSpec) call {
	return func(ctx context.Context, worker int) (int, error) {
		resp, err := services[worker%len(services)].SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: specs})
		if after, refused := refusedFor(err); refused {
			select {
			case <-ctx.Done():
			case <-time.After(after):
			}
			return 0, nil
		}
		return len(resp.GetIds()), err
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

// outcomes are those of the requests of a step.
type outcomes struct {
	mu                         sync.Mutex
	accepted, refusals, delays []time.Duration
	acceptedActions, failed    int
	unsent                     int
	firstError                 error
}

func (c *outcomes) note(took time.Duration, ids int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch after, refused := refusedFor(err); {
	case err == nil:
		c.accepted = append(c.accepted, took)
		c.acceptedActions += ids
	case refused:
		c.refusals, c.delays = append(c.refusals, took), append(c.delays, after)
	default:
		if c.failed++; c.firstError == nil {
			c.firstError = err
		}
	}
}

// overload offers a multiple of what the cluster takes for a while.
func (h *held) overload(ctx context.Context, o OverloadOptions, factor, capacity float64, services []rotav1connect.ActionServiceClient, specs []*rotav1.ActionSpec) (OverloadStep, error) {
	s := OverloadStep{Factor: factor}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	health := make(chan error, 1)
	go func() { health <- h.watchHealth(watched, &s) }()

	var c outcomes
	began, sent := time.Now(), 0
	places := make(chan struct{}, o.InFlight)
	var wg sync.WaitGroup
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < o.Duration && ctx.Err() == nil {
		due := int(time.Since(began).Seconds() * factor * capacity / float64(len(specs)))
		for ; sent < due; sent++ {
			select {
			case places <- struct{}{}:
			default:
				c.unsent++ // only here
				continue
			}
			service := services[sent%len(services)]
			wg.Go(func() {
				defer func() { <-places }()
				at := time.Now()
				resp, err := service.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: specs})
				c.note(time.Since(at), len(resp.GetIds()), err)
			})
		}
		<-tick.C
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	stop()
	if err := <-health; err != nil {
		return s, err
	}
	s.Offered = float64(sent*len(specs)) / o.Duration.Seconds()
	s.Goodput = float64(c.acceptedActions) / took
	s.GoodputPercent = 100 * s.Goodput / capacity
	s.Accepted, s.Refused, s.Unsent, s.Failed = len(c.accepted), len(c.refusals), c.unsent, c.failed
	s.P50MS, s.P99MS, s.MaxMS = quantiles(c.accepted)
	_, s.RefusedP99MS, _ = quantiles(c.refusals)
	s.RetryAfterMS, _, _ = quantiles(c.delays)
	if c.firstError != nil {
		s.FirstError = c.firstError.Error()
	}
	return s, ctx.Err()
}

// watchHealth looks at the leader until ctx is done: its term, how many nodes are up, and how long a
// linearizable read takes.
func (h *held) watchHealth(ctx context.Context, s *OverloadStep) error {
	first, err := h.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err != nil {
		return fmt.Errorf("the cluster does not say how it is: %w", err)
	}
	s.NodesUpMin = first.NodesUp
	var reads []time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		_, err := h.api.Operator.ListPools(ctx, &rotav1.ListPoolsRequest{})
		now, e := h.api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		if err := errors.Join(err, e); err != nil {
			if ctx.Err() != nil {
				break
			}
			return fmt.Errorf("the cluster does not say how it is: %w", err)
		}
		reads = append(reads, time.Since(began))
		s.NodesUpMin = min(s.NodesUpMin, now.NodesUp)
		s.TermChanges = now.Term - first.Term
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	_, s.ReadP99MS, _ = quantiles(reads)
	return nil
}
