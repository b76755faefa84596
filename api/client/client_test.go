package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func TestMain(m *testing.M) {
	// Connections that the other side has cut take a moment to be noticed.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*http2clientConnReadLoop).run"))
}

// However an answer is lost, a submission is accepted exactly once.
func TestSubmissionsAreRepeatedWithTheSameID(t *testing.T) {
	abort := func(call int32) error {
		if call <= 3 {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	fail := func(err error) func(int32) error {
		return func(call int32) error {
			if call <= 3 {
				return err
			}
			return nil
		}
	}
	unsure := func(c *cluster) func(*rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
		tries := 0
		return func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
			accepted := c.submit(r)
			if tries++; tries <= 3 {
				return refuse(connect.CodeUnavailable, "UNKNOWN_OUTCOME", time.Millisecond)
			}
			return accepted
		}
	}
	full := func(c *cluster) func(*rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
		tries := 0
		return func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
			if tries++; tries <= 3 {
				return refuse(connect.CodeResourceExhausted, "QUEUE_FULL", time.Millisecond)
			}
			return c.submit(r)
		}
	}
	for name, break_ := range map[string]func(*server){
		"killed before the commit":        func(s *server) { s.before = abort },
		"killed after the commit":         func(s *server) { s.after = abort },
		"no leader":                       func(s *server) { s.before = fail(unavailable("NO_LEADER")) },
		"leader lost after the commit":    func(s *server) { s.after = fail(unavailable("UNKNOWN_OUTCOME")) },
		"a proxy's error":                 func(s *server) { s.after = fail(connect.NewError(connect.CodeUnavailable, errTest)) },
		"unknown outcome of one of batch": func(s *server) { s.one = unsure(s.cluster) },
		"queue full":                      func(s *server) { s.one = full(s.cluster) },
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			a, b := cl.server(t), cl.server(t)
			break_(a)
			break_(b)
			ids, err := connectTo(t, a, b).Submit(t.Context(), spec(1), spec(2))
			if err != nil || fmt.Sprint(ids) != "[1 2]" {
				t.Errorf("got %v, %v", ids, err)
			}
			if n := cl.executions(); n != 1 {
				t.Errorf("accepted %d times", n)
			}
		})
	}
}

// What the server says of when actions start is passed on, to each submission its own.
func TestEstimatesArePassedOn(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.one = func(r *rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
		accepted := cl.submit(r)
		for i := range r.Actions {
			accepted.GetResponse().Estimates = append(accepted.GetResponse().Estimates, &rotav1.StartEstimate{P50: durationpb.New(time.Duration(i)), P90: durationpb.New(time.Minute)})
		}
		return accepted
	}
	resp, err := connectTo(t, s).SubmitEstimated(t.Context(), spec(1), spec(2))
	if err != nil || fmt.Sprint(resp.Ids) != "[1 2]" || len(resp.Estimates) != 2 || resp.Estimates[1].P50.AsDuration() != 1 {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.one = func(*rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
		return refuse(connect.CodeNotFound, "POOL_NOT_FOUND", 0)
	}
	_, err := connectTo(t, s).Submit(t.Context(), spec(1))
	if connect.CodeOf(err) != connect.CodeNotFound || Detail(err).GetReason() != "POOL_NOT_FOUND" || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if n := s.calls.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	// A call that would have another effect the second time is not repeated.
	s.before = func(int32) error { panic(http.ErrAbortHandler) }
	_, err = connectTo(t, s).Actions.BatchSubmitActions(t.Context(), &rotav1.BatchSubmitActionsRequest{
		Requests: []*rotav1.SubmitActionsRequest{{Actions: []*rotav1.ActionSpec{spec(1)}}},
	})
	if n := s.calls.Load(); err == nil || n != 2 {
		t.Errorf("asked %d times, %v", n-1, err)
	}
}

func TestGivingUpSaysThatTheOutcomeIsUnknown(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.after = func(int32) error { panic(http.ErrAbortHandler) }
	c := connectTo(t, s)
	c.config.RetryFor = 50 * time.Millisecond
	if _, err := c.Submit(t.Context(), spec(1)); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("after RetryFor: %v", err)
	}
	c.config.RetryFor = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Submit(ctx, spec(1)); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the caller's deadline: %v", err)
	}
}

func TestAClockThatIsBehindIsReadAgain(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	c := connectTo(t, s)
	if _, err := c.Submit(t.Context(), spec(1)); err != nil {
		t.Fatal(err)
	}
	cl.mu.Lock()
	cl.logTime = cl.logTime.Add(time.Hour) // our machine was asleep
	cl.mu.Unlock()
	if _, err := c.Submit(t.Context(), spec(2)); err != nil {
		t.Errorf("got %v", err)
	}
	cl.mu.Lock()
	cl.logTime = cl.logTime.Add(time.Hour)
	cl.mu.Unlock()
	if _, err := c.Run(t.Context(), spec(3), func(*rotav1.RunActionResponse) {}); err != nil {
		t.Errorf("run: %v", err)
	}
	if n := cl.executions(); n != 3 {
		t.Errorf("accepted %d submissions of 3", n)
	}
}

// expiring is a service that refuses trajectories whose request ID has expired.
type expiring struct {
	rotav1connect.TrajectoryServiceClient
	cl    *cluster
	lost  bool // the first answer, so that the outcome is unknown
	tries int
}

func (s *expiring) OpenTrajectory(_ context.Context, req *rotav1.OpenTrajectoryRequest) (*rotav1.OpenTrajectoryResponse, error) {
	s.tries++
	s.cl.mu.Lock()
	defer s.cl.mu.Unlock()
	err := detailError(refuse(connect.CodeDeadlineExceeded, "REQUEST_EXPIRED", 0).GetError())
	switch {
	case s.lost:
		return nil, unknownIf(true, err)
	case req.ExpireTime.AsTime().Before(s.cl.logTime):
		return nil, err
	}
	return &rotav1.OpenTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: 5}}, nil
}

// TestOtherRequestsWithAnIDThatExpired are repeated as submissions are: with a clock that was read again,
// unless they may have been carried out, or the caller has chosen the ID.
func TestOtherRequestsWithAnIDThatExpired(t *testing.T) {
	cl := newCluster()
	c := connectTo(t, cl.server(t))
	if _, err := c.expiry(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		req   *rotav1.OpenTrajectoryRequest
		lost  bool
		tries int
	}{
		{"expired on its way", &rotav1.OpenTrajectoryRequest{}, false, 2},
		{"may have been carried out", &rotav1.OpenTrajectoryRequest{}, true, 1},
		{"an ID of the caller", &rotav1.OpenTrajectoryRequest{RequestId: "mine", ExpireTime: timestamppb.New(cl.logTime)}, false, 1},
	} {
		cl.mu.Lock()
		cl.logTime = cl.logTime.Add(time.Hour) // our machine was asleep
		cl.mu.Unlock()
		s := &expiring{cl: cl, lost: test.lost}
		c.Trajectories = s
		if _, err := c.OpenTrajectory(t.Context(), test.req); (err == nil) != (test.tries == 2) || s.tries != test.tries {
			t.Errorf("%s: %d tries, %v", test.name, s.tries, err)
		}
	}
}

// TestCloseEndsWaits, which do not ask the servers again and again.
func TestCloseEndsWaits(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	c := connectTo(t, s)
	ids, err := c.Submit(t.Context(), spec(1))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := c.Wait(t.Context(), ids[0])
		ended <- err
	}()
	waitUntil(t, func() bool { return cl.streams.Load() > 0 })
	c.Close()
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("a wait ends with %v", err)
	}
	if _, err := c.Wait(t.Context(), ids[0]); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestAServerThatKnowsNoTime: one that has just started does not know log time,
// and one that lags has an old one. Neither may cost a submission.
func TestAServerThatKnowsNoTime(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.timeless = true
	c := connectTo(t, s)
	if _, err := c.Submit(t.Context(), spec(1)); err != nil {
		t.Errorf("without a time: %v", err)
	}
	cl.mu.Lock()
	s.timeless, s.behind = false, time.Hour
	cl.mu.Unlock()
	time.AfterFunc(2*clockRetry, func() {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		s.behind = 0
	})
	if _, err := c.Submit(t.Context(), spec(2)); err != nil {
		t.Errorf("with a time that is long past at first: %v", err)
	}
}

// TestARepeatedCallDoesNotHideItsFirstTry: the last error of a call says that
// nothing was done, but an earlier try may have been.
func TestARepeatedCallDoesNotHideItsFirstTry(t *testing.T) {
	for _, test := range []struct {
		name    string
		tries   []error // nil breaks the connection
		unknown bool
	}{
		{"lost, then refused", []error{nil, detailError(refuse(connect.CodeNotFound, "ACTION_NOT_FOUND", 0).GetError())}, true},
		{"said to be unknown, then refused", []error{unavailable("UNKNOWN_OUTCOME"), detailError(refuse(connect.CodeNotFound, "ACTION_NOT_FOUND", 0).GetError())}, true},
		{"no leader, then refused", []error{unavailable("NO_LEADER"), detailError(refuse(connect.CodeNotFound, "ACTION_NOT_FOUND", 0).GetError())}, false},
	} {
		s := newCluster().server(t)
		s.cancel = func(call int32) error {
			if err := test.tries[call-1]; err != nil {
				return err
			}
			panic(http.ErrAbortHandler)
		}
		_, err := connectTo(t, s).Actions.CancelActions(t.Context(), &rotav1.CancelActionsRequest{Ids: []uint64{1}})
		if errors.Is(err, ErrUnknownOutcome) != test.unknown || Detail(err).GetReason() != "ACTION_NOT_FOUND" {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestOtherServersAreTried(t *testing.T) {
	cl := newCluster()
	dead := &server{addr: unused(t)}
	live := cl.server(t)
	c := connectTo(t, dead, dead, live)
	if _, err := c.Submit(t.Context(), spec(1)); err != nil {
		t.Error(err)
	}
	if c.servers.pick() != live.addr {
		t.Errorf("sticks to %s", c.servers.pick())
	}
}

// unused returns an address that refuses connections.
func unused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestTheLeaderIsFound(t *testing.T) {
	cl := newCluster()
	follower, leader := cl.server(t), cl.server(t)
	follower.leader = leader.addr
	c := connectTo(t, follower) // knows only the follower
	for i := range 3 {
		if _, err := c.Submit(t.Context(), spec(i)); err != nil {
			t.Fatal(err)
		}
	}
	if leader.calls.Load() < 2 {
		t.Errorf("the leader had %d of 3 calls", leader.calls.Load())
	}
	// A leader that cannot be reached where it says it is must not trap us.
	follower.leader = unused(t)
	c = connectTo(t, follower)
	for i := range 3 {
		if _, err := c.Submit(t.Context(), spec(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubmissionsTravelTogether(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	release := make(chan struct{})
	s.before = func(call int32) error {
		if call <= 2 { // as many as may be in flight
			<-release
		}
		return nil
	}
	c := connectTo(t, s)
	const n = 100
	var wg sync.WaitGroup
	seen := make(chan uint64, n)
	for i := range n {
		wg.Go(func() {
			ids, err := c.Submit(t.Context(), spec(i))
			if err != nil {
				t.Error(err)
				return
			}
			// Each caller gets the ID of its own action.
			if cl.name(ids[0]) != fmt.Sprint(i) {
				t.Errorf("submission %d got %v", i, ids)
			}
			seen <- ids[0]
		})
	}
	waitUntil(t, func() bool {
		c.batcher.mu.Lock()
		defer c.batcher.mu.Unlock()
		return int(s.received.Load())+len(c.batcher.pending) == n
	})
	close(release)
	wg.Wait()
	if calls := s.calls.Load(); calls > 3 {
		t.Errorf("%d submissions took %d calls", n, calls)
	}
	if len(seen) != n || cl.executions() != n {
		t.Errorf("%d IDs for %d accepted submissions", len(seen), cl.executions())
	}
}

// What is too large for one message is sent in several.
func TestABatchThatIsTooLargeIsSplit(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	s.batchMax = 3
	c := connectTo(t, s)
	batch := make([]*submission, 20)
	for i := range batch {
		batch[i] = &submission{
			ctx: t.Context(), giveUp: time.Now().Add(time.Minute), done: make(chan struct{}),
			req: &rotav1.SubmitActionsRequest{RequestId: fmt.Sprint(i), Actions: []*rotav1.ActionSpec{spec(i)}},
		}
	}
	c.submitBatch(batch)
	for i, b := range batch {
		<-b.done
		if b.err != nil || cl.name(b.resp.GetIds()[0]) != fmt.Sprint(i) {
			t.Errorf("submission %d: %v, %v", i, b.resp.GetIds(), b.err)
		}
	}
	if n := cl.executions(); n != len(batch) {
		t.Errorf("%d submissions were accepted of %d", n, len(batch))
	}
}

func waitUntil(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("it never happened")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	cl := newCluster()
	s := cl.server(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s.before = func(int32) error { close(arrived); <-release; return nil }
	c := connectTo(t, s)
	done := make(chan error)
	go func() {
		_, err := c.Submit(context.Background(), spec(1))
		done <- err
	}()
	<-arrived
	c.Close()
	if err := <-done; !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Submit(t.Context(), spec(1)); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A server that is paused accepts connections and says nothing.
func TestAServerThatHangsIsLeft(t *testing.T) {
	t.Parallel() // it takes the seconds after which a connection is given up
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cl := newCluster()
	live := cl.server(t)
	c := connectTo(t, &server{addr: l.Addr().String()}, live)
	if _, err := c.Submit(t.Context(), spec(1)); err != nil || cl.executions() != 1 {
		t.Errorf("accepted %d times, %v", cl.executions(), err)
	}
}

// A submission that may have been accepted says so when the client is closed before another try.
func TestCloseSaysThatTheOutcomeIsUnknown(t *testing.T) {
	s := newCluster().server(t)
	asked := make(chan struct{})
	s.one = func(*rotav1.SubmitActionsRequest) *rotav1.SubmitActionsResult {
		close(asked)
		return refuse(connect.CodeUnavailable, "UNKNOWN_OUTCOME", 10*time.Second)
	}
	c := connectTo(t, s)
	ended := make(chan error)
	go func() {
		_, err := c.Submit(t.Context(), spec(1))
		ended <- err
	}()
	<-asked
	waitUntil(t, func() bool { // the answer has come
		c.batcher.mu.Lock()
		defer c.batcher.mu.Unlock()
		return c.batcher.flying == 0
	})
	c.Close()
	if err := <-ended; !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, errClosed) {
		t.Errorf("ends with %v", err)
	}
}
