package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
)

// clockAge is how long a reading of log time is trusted: the two clocks drift
// apart, and ours stops while the machine sleeps.
const clockAge = 10 * time.Minute

// clockRetry is how soon the log time is read again that turned out to be wrong.
const clockRetry = 100 * time.Millisecond

// expiryMargin is added to the life of a request ID, for what the two clocks
// differ and for the last try to arrive.
const expiryMargin = 10 * time.Second

// expiryMax is the longest life of a request ID that servers accept. A call that is
// repeated for longer gets REQUEST_EXPIRED then: see identified.
const expiryMax = time.Hour

// rememberedFor is how long a request ID without an expiry may be used again. Servers
// remember it for ten minutes. A submission that is put back may be older by as much
// when it is sent again, and the last try takes its time.
const rememberedFor = 4 * time.Minute

// logClock estimates log time: what a server said it was, and our own monotonic
// clock since.
type logClock struct {
	// reading holds the newest reading; who has taken it out may replace it.
	reading chan reading
	// remembered is rememberedFor, but in tests.
	remembered time.Duration
}

type reading struct {
	logTime time.Time
	at      time.Time // on our monotonic clock; zero if there is none
}

func newClock() logClock {
	k := logClock{reading: make(chan reading, 1), remembered: rememberedFor}
	k.reading <- reading{}
	return k
}

// expiry returns the log time until which a request made now is to be
// remembered. It is nil, for as long as servers remember by themselves, if the
// server that was asked does not know the time yet: such a request is not repeated
// for longer than they do, see repeatable.
func (c *Client) expiry(ctx context.Context) (*timestamppb.Timestamp, error) {
	var r reading
	select {
	case r = <-c.clock.reading:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { c.clock.reading <- r }()
	if r.at.IsZero() || time.Since(r.at) > clockAge {
		status, err := c.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		if err != nil {
			return nil, err
		}
		if status.LogTime == nil {
			return nil, nil
		}
		r = reading{status.LogTime.AsTime(), time.Now()}
	}
	now := r.logTime.Add(time.Since(r.at))
	return timestamppb.New(now.Add(min(c.config.RetryFor+expiryMargin, expiryMax))), nil
}

// identified makes a call under a new request ID with an expiry, which it puts into the request; with an
// ID that the caller has chosen, it only makes the call. A request that had expired when it arrived has
// changed nothing, because our clock was behind, so the call is made again with a clock that was read
// again, for RetryFor at most. One that may have been carried out before is not.
func (c *Client) identified(ctx context.Context, id *string, expires **timestamppb.Timestamp, call func() error) error {
	if *id != "" {
		return call()
	}
	giveUp := time.Now().Add(c.config.RetryFor)
	*id = c.requestID()
	for {
		var err error
		if *expires, err = c.expiry(ctx); err != nil {
			*id = ""
			return err
		}
		err = call()
		if Detail(err).GetReason() != requestExpired || errors.Is(err, ErrUnknownOutcome) || time.Now().After(giveUp) {
			return err
		}
		c.clock.forget()
		if backoff.Sleep(ctx, clockRetry) != nil {
			return err
		}
	}
}

// requestExpired is the reason of an error: the time until which a request ID is remembered had passed.
const requestExpired = "REQUEST_EXPIRED"

// forget makes the next expiry ask a server for the log time.
func (k *logClock) forget() {
	<-k.reading
	k.reading <- reading{}
}
