package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// direct is a server without a network, for tests with a fake clock.
type direct struct{ http.Handler }

func (d direct) Do(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	return w.Result(), req.Context().Err()
}

// directTo returns a client of a fake server without a network.
func directTo(t *testing.T, s *server, config Config) *Client {
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewActionServiceHandler(s, codec.ForHandler()))
	mux.Handle(rotav1connect.NewOperatorServiceHandler(s, codec.ForHandler()))
	config.Addrs, config.HTTP = []string{"server:1"}, direct{mux}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// room is a queue that takes so many actions a second, and refuses what is beyond that.
type room struct {
	*cluster
	perSecond int
	delay     time.Duration

	mu                sync.Mutex
	until             time.Time
	left              int
	accepted, refused int
}

func (r *room) one(req *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.After(r.until) {
		r.until, r.left = now.Add(time.Second), r.perSecond
	}
	if len(req.Actions) > r.left {
		r.refused += len(req.Actions)
		return refuse(connect.CodeResourceExhausted, "QUEUE_FULL", r.delay)
	}
	r.left -= len(req.Actions)
	r.accepted += len(req.Actions)
	return r.submit(req)
}

// However many callers a client has, what a refusal says holds for all of them: what is refused is a
// small part of what is accepted, in a call for many.
func TestWhatIsRefusedIsASmallPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{cluster: newCluster()}
		r := &room{cluster: s.cluster, perSecond: 100, delay: time.Second}
		s.one = r.one
		var told atomic.Int64
		c := directTo(t, s, Config{RetryFor: 10 * time.Minute, Throttled: func(x Throttled) { told.Add(int64(x.Sent - x.Accepted)) }})
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if _, err := c.Submit(ctx, spec(i)); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// The first batches, with all callers, are refused but for 100 actions.
		if refused := r.refused - 500; refused > r.accepted/2 {
			t.Errorf("%d actions were refused, and %d accepted", r.refused, r.accepted)
		}
		// Callers wait up to half of a second longer than they have to.
		if r.accepted < 2*60*100/2 {
			t.Errorf("%d actions were accepted", r.accepted)
		}
		if calls := int(s.calls.Load()); calls > r.accepted/10 {
			t.Errorf("%d calls for %d accepted actions", calls, r.accepted)
		}
		if told.Load() != int64(r.refused) {
			t.Errorf("Throttled was told of %d refusals of %d", told.Load(), r.refused)
		}
	})
}

// While the client waits, nothing is sent: new submissions wait with those that were refused, and
// go after them.
func TestRefusedSubmissionsWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{cluster: newCluster()}
		var room atomic.Bool
		began := time.Now()
		s.one = func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
			if !room.Load() {
				return refuse(connect.CodeResourceExhausted, "QUEUE_FULL", 10*time.Second)
			}
			return s.submit(r)
		}
		c := directTo(t, s, Config{RetryFor: time.Minute})
		defer c.Close()
		var wg sync.WaitGroup
		ids := make([]uint64, 40)
		for i := range ids {
			wg.Go(func() {
				got, err := c.Submit(t.Context(), spec(i))
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = got[0]
				if waited := time.Since(began); waited < 10*time.Second || waited > 15*time.Second {
					t.Errorf("submission %d took %v", i, waited)
				}
			})
			synctest.Wait()
			if n := s.calls.Load(); n != 1 {
				t.Errorf("%d calls after %d submissions", n, i+1)
			}
		}
		room.Store(true)
		wg.Wait()
		for i, id := range ids {
			if id != uint64(i+1) {
				t.Errorf("submission %d was accepted as number %d", i+1, id)
			}
		}
		// 1 action, which is refused, then 1, 2, 3, 4, 6, 8, 11, and the other 5.
		if n := s.calls.Load(); n != 9 {
			t.Errorf("%d calls", n)
		}
	})
}

// A submission that is too large for what room there is does not keep smaller ones from it.
func TestALargeSubmissionDoesNotKeepSmallOnesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{cluster: newCluster()}
		r := &room{cluster: s.cluster, perSecond: 10, delay: time.Second}
		s.one = r.one
		c := directTo(t, s, Config{RetryFor: time.Minute})
		defer c.Close()
		large := make(chan error, 1)
		go func() {
			_, err := c.Submit(t.Context(), slices.Repeat([]*rotav1.ActionSpec{spec(0)}, 20)...)
			large <- err
		}()
		synctest.Wait()
		began := time.Now()
		for i := range 10 {
			if _, err := c.Submit(t.Context(), spec(i)); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("ten small submissions took %v", took)
		}
		if err := <-large; Detail(err).GetReason() != "QUEUE_FULL" {
			t.Errorf("the large one: %v", err)
		}
	})
}

// A submission is not held back for longer than it may take: it ends with what the servers said. Nor
// for longer than the client is open.
func TestWaitingHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{cluster: newCluster()}
		var lost atomic.Bool
		s.before = func(int32) error {
			if lost.CompareAndSwap(true, false) {
				return connect.NewError(connect.CodeUnavailable, errTest)
			}
			return detailError(refuse(connect.CodeResourceExhausted, "OVERLOADED", 20*time.Second).GetError())
		}
		c := directTo(t, s, Config{RetryFor: time.Minute})
		submit := func(wantReason string, unknown bool, after time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := c.Submit(t.Context(), spec(1))
			if Detail(err).GetReason() != wantReason || errors.Is(err, ErrUnknownOutcome) != unknown || time.Since(began) > after {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
		}
		submit("OVERLOADED", false, time.Minute)
		c.config.RetryFor = time.Second // until is 20 s or more away
		submit("OVERLOADED", false, 0)
		if n := s.calls.Load(); n < 2 || n > 3 {
			t.Errorf("%d calls in a minute with a delay of 20 to 30 s", n)
		}
		time.Sleep(time.Minute)
		lost.Store(true) // and perhaps accepted
		c.config.RetryFor = time.Minute
		submit("OVERLOADED", true, time.Minute)

		done := make(chan error, 1)
		go func() {
			_, err := c.Submit(context.Background(), spec(1))
			done <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-done; !errors.Is(err, errClosed) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// The limit follows what is accepted, and goes when all is.
func TestThrottle(t *testing.T) {
	at := time.Now()
	var th throttle
	full := fmt.Errorf("full")
	for i, step := range []struct {
		sent, accepted int
		last           bool
		want           int // 0: off
	}{
		{sent: 10, accepted: 10, want: 0},
		{sent: 1000, accepted: 0, want: 500},
		{sent: 500, accepted: 100, want: 250},
		{sent: 250, accepted: 250, want: 313},
		{sent: 252, accepted: 0, want: 126},
		{sent: 1, accepted: 0, want: 1},
		{sent: 1, accepted: 1, last: true, want: 0},
		{sent: 4096, accepted: 4000, want: 5001},
		{sent: 4096, accepted: 4096, want: 0},
	} {
		if step.sent == step.accepted {
			th.accepted(step.last)
		} else {
			th.refused(at, step.sent, step.accepted, time.Second, full)
		}
		if th.limit != step.want || th.on() != (step.want > 0) {
			t.Errorf("after step %d the limit is %d, want %d", i, th.limit, step.want)
		}
	}
	th.refused(at, 10, 0, time.Second, full)
	if w := th.wait(at); w < time.Second || w > 1500*time.Millisecond || th.wait(at.Add(time.Minute)) != 0 {
		t.Errorf("waits for %v", w)
	}
}

// fullQueue refuses all that is to be run, and accepts what is submitted in batches once it has room.
type fullQueue struct {
	*server
	delay time.Duration
	runs  []time.Time
}

func (q *fullQueue) RunAction(_ context.Context, r *rotav1.RunActionRequest, _ *connect.ServerStream[rotav1.RunActionResponse]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.runs = append(q.runs, time.Now())
	return detailError(refuse(connect.CodeResourceExhausted, "QUEUE_FULL", q.delay).GetError())
}

// What is run waits together with what is submitted, whichever of them is refused.
func TestRunsWaitWithSubmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, open := time.Now(), 10*time.Second
		q := &fullQueue{server: &server{cluster: newCluster()}, delay: 4 * time.Second}
		var batches []time.Time
		q.one = func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
			batches = append(batches, time.Now())
			if time.Since(began) < open {
				return refuse(connect.CodeResourceExhausted, "QUEUE_FULL", open)
			}
			return q.submit(r)
		}
		mux := http.NewServeMux()
		mux.Handle(rotav1connect.NewActionServiceHandler(q, codec.ForHandler()))
		mux.Handle(rotav1connect.NewOperatorServiceHandler(q, codec.ForHandler()))
		c, err := New(Config{Addrs: []string{"server:1"}, HTTP: direct{mux}, RetryFor: 40 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		submitted := make(chan error)
		submit := func() {
			_, err := c.Submit(t.Context(), spec(1))
			submitted <- err
		}
		go submit()
		synctest.Wait() // it was refused
		_, err = c.Run(t.Context(), spec(2), func(*rotav1.RunActionResponse) {})
		if Detail(err).GetReason() != "QUEUE_FULL" || len(q.runs) == 0 || q.runs[0].Sub(began) < open {
			t.Errorf("ends with %v, after tries at %v", err, q.runs)
		}
		if err := <-submitted; err != nil {
			t.Error(err)
		}
		last := q.runs[len(q.runs)-1] // refused for four seconds
		batches = nil
		go submit()
		if err := <-submitted; err != nil || len(batches) != 1 || batches[0].Sub(last) < q.delay {
			t.Errorf("submitted %v after the refusal, %v", batches[0].Sub(last), err)
		}
	})
}
