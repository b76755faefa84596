package client

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/internal/clock"
)

// Of the leases of turnServer.
const (
	turnLease  = 600 * time.Millisecond
	turnMargin = 100 * time.Millisecond
)

// turnServer has one turn, which is granted with its second renewal. With hooks it is set
// up then, until the test says otherwise.
type turnServer struct {
	rotav1connect.UnimplementedTurnServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler

	lease time.Duration // turnLease, unless the test sets it

	mu       sync.Mutex
	turn     *rotav1.Turn
	renewals int
	last     time.Time // when the newest renewal came
	silent   bool      // renewals are not answered any more
	held     bool      // it was asked for before, and granted
	outage   time.Time // until when no server accepts a request for a turn
	hooks    bool
	known    int      // renewals by who knew that it is set up
	lacks    []string // what the newest renewals knew as degraded
	yielded  *rotav1.YieldTurnRequest
	refuses  error // what yielding is answered with
}

func (s *turnServer) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{}, nil
}

func (s *turnServer) AcquireTurn(_ context.Context, r *rotav1.AcquireTurnRequest) (*rotav1.AcquireTurnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.RequestId == "" {
		return nil, errors.New("the request has no ID, so it cannot be repeated")
	}
	s.turn = &rotav1.Turn{Id: 7, State: rotav1.TurnState_TURN_STATE_WAITING, Revision: 1}
	if time.Now().Before(s.outage) {
		return nil, unavailable("NO_LEADER")
	}
	if s.held || !s.outage.IsZero() { // nobody is before it
		s.turn.State, s.turn.Token, s.renewals = rotav1.TurnState_TURN_STATE_HELD, 5, 2
	}
	return &rotav1.AcquireTurnResponse{
		Turn: proto.CloneOf(s.turn), Replayed: s.held, LeaseDuration: durationpb.New(cmp.Or(s.lease, turnLease)), LeaseMargin: durationpb.New(turnMargin),
	}, nil
}

func (s *turnServer) RenewTurn(ctx context.Context, r *rotav1.RenewTurnRequest) (*rotav1.RenewTurnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return nil, ctx.Err()
	}
	if s.renewals++; s.renewals == 2 {
		s.turn.State, s.turn.Token, s.turn.Revision = rotav1.TurnState_TURN_STATE_HELD, 5, 2
		if s.hooks {
			s.turn.State = rotav1.TurnState_TURN_STATE_SETTING_UP
		}
	}
	if r.SettingUp {
		s.known++
	}
	if r.KnownDegraded != nil {
		s.lacks = append(s.lacks, *r.KnownDegraded)
	}
	s.last = time.Now()
	if r.Token == s.turn.Token { // no news
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		s.mu.Lock()
	}
	return &rotav1.RenewTurnResponse{
		Turn: proto.CloneOf(s.turn), Renewed: true, LeaseDuration: durationpb.New(cmp.Or(s.lease, turnLease)), LeaseMargin: durationpb.New(turnMargin),
	}, nil
}

func (s *turnServer) YieldTurn(_ context.Context, r *rotav1.YieldTurnRequest) (*rotav1.YieldTurnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yielded = r
	return &rotav1.YieldTurnResponse{Turn: s.turn}, s.refuses
}

func (s *turnServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *turnServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewals
}

// holding returns a client of a turnServer.
func holding(t *testing.T) (*Client, *turnServer) {
	t.Helper()
	s := &turnServer{}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewTurnServiceHandler(s, codec.ForHandler()))
	mux.Handle(rotav1connect.NewOperatorServiceHandler(s, codec.ForHandler()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpx.NewServer(mux)
	go srv.Serve(l)
	c, err := New(Config{Addrs: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c, s
}

var someTurn = &rotav1.AcquireTurnRequest{Deployment: "a/b", Operation: rotav1.Operation_OPERATION_GENERATE}

// TestATurnIsRenewedWhileItIsHeld, and given back with what was measured.
func TestATurnIsRenewedWhileItIsHeld(t *testing.T) {
	c, s := holding(t)
	s.lease = 3 * time.Second // which a busy machine keeps as well
	err := c.HoldTurn(t.Context(), someTurn, func(ctx context.Context, turn *rotav1.Turn) error {
		if turn.Token != 5 {
			t.Errorf("works on %v, want it held with token 5", turn)
		}
		before := s.count()
		for deadline := time.Now().Add(5 * s.lease); s.count() < before+2 && ctx.Err() == nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if n := s.count() - before; n < 2 || ctx.Err() != nil {
			t.Errorf("%d renewals in five leases; done: %v", n, context.Cause(ctx))
		}
		HoldOf(ctx).SetUpTook(time.Second)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if y := s.yielded; y.GetToken() != 5 || y.Failed || y.SetUp.AsDuration() != time.Second {
		t.Errorf("yielded with %v", y)
	}
}

// TestAGroupThatLacksMembers: the holder hears of it at the beginning and of each change, and
// renewals say what it knows.
func TestAGroupThatLacksMembers(t *testing.T) {
	c, s := holding(t)
	told := make(chan string, 9)
	on := OnDegraded(func(degraded string) { told <- degraded })
	err := c.HoldTurn(t.Context(), someTurn, func(ctx context.Context, turn *rotav1.Turn) error {
		if turn.Degraded != "" || HoldOf(ctx).Degraded() != "" {
			t.Error("it is degraded from the beginning")
		}
		for _, lack := range []string{"n1: the node is down", ""} {
			s.set(func() { s.turn.Degraded = lack })
			select {
			case got := <-told:
				if got != lack || HoldOf(ctx).Degraded() != lack {
					t.Errorf("told of %q and has %q, want %q", got, HoldOf(ctx).Degraded(), lack)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("not told of %q", lack)
			}
		}
		return nil
	}, on)
	if err != nil || len(told) > 0 {
		t.Errorf("%v, told of %d more", err, len(told))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.lacks, "n1: the node is down") {
		t.Errorf("renewals know %q", s.lacks)
	}
}

// lateness watches how late timers are on this machine, and returns the most so far.
func lateness(t *testing.T) func() time.Duration {
	t.Helper()
	const pause = 10 * time.Millisecond
	var worst atomic.Int64
	go func() {
		for t.Context().Err() == nil {
			begin := time.Now()
			time.Sleep(pause)
			worst.Store(max(worst.Load(), int64(time.Since(begin)-pause)))
		}
	}()
	return func() time.Duration { return time.Duration(worst.Load()) }
}

// TestWorkEndsBeforeTheLeaseDoes: counted from when the newest renewal was sent.
func TestWorkEndsBeforeTheLeaseDoes(t *testing.T) {
	c, s := holding(t)
	late := lateness(t)
	err := c.HoldTurn(t.Context(), someTurn, func(ctx context.Context, _ *rotav1.Turn) error {
		s.set(func() { s.silent = true })
		<-ctx.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if since := time.Since(s.last); since < turnLease-2*turnMargin || since > turnLease+2*late() {
			t.Errorf("canceled %v after the last renewal came, want %v; timers are up to %v late", since, turnLease-turnMargin, late())
		}
		select {
		case <-HoldOf(ctx).Lost():
		case <-time.After(time.Second):
			t.Error("canceled, but not lost")
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, ErrTurnLost) || !strings.Contains(err.Error(), "turn 7 was lost: its lease of 600ms has run out") {
		t.Errorf("ends with %v, want ErrTurnLost", err)
	}
}

// TestALostTurnSaysHow: as the cluster told it.
func TestALostTurnSaysHow(t *testing.T) {
	ended := connect.NewError(connect.CodeFailedPrecondition, errors.New("TURN_ENDED"))
	detail, err := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: "TURN_ENDED", Message: "turn 7 has ended: it was canceled"})
	if err != nil {
		t.Fatal(err)
	}
	ended.AddDetail(detail)
	for want, change := range map[string]func(*turnServer){
		"turn 7 was lost: the cluster gave it up":            func(s *turnServer) { s.turn.State = rotav1.TurnState_TURN_STATE_LOST },
		"turn 7 was lost: it was canceled":                   func(s *turnServer) { s.turn.State = rotav1.TurnState_TURN_STATE_CANCELED },
		"turn 7 was lost: another token counts: 6, not 5":    func(s *turnServer) { s.turn.Token = 6 },
		"turn 7 was lost: turn 7 has ended: it was canceled": func(s *turnServer) { s.refuses = ended },
	} {
		c, s := holding(t)
		err := c.HoldTurn(t.Context(), someTurn, func(ctx context.Context, _ *rotav1.Turn) error {
			s.set(func() { change(s); s.turn.Revision++ })
			if s.refuses == nil {
				<-HoldOf(ctx).Lost()
			}
			return nil
		})
		if !errors.Is(err, ErrTurnLost) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ends with %v, want %s", err, want)
		}
	}
}

// TestALeaseRunsOutByTheClock, and not by timers: they stand still in a machine that
// sleeps.
func TestALeaseRunsOutByTheClock(t *testing.T) {
	h := &holder{hold: &Hold{}, lease: time.Hour, margin: time.Minute}
	h.renewedFrom(clock.Boottime())
	held, cancel := h.leased(t.Context())
	defer cancel()
	h.renewedFrom(clock.Boottime() - int64(time.Hour))
	over, cancel := h.leased(t.Context())
	defer cancel()
	select {
	case <-over.Done():
	case <-time.After(10 * time.Second):
		t.Error("a lease is counted that has run out")
	}
	if held.Err() != nil {
		t.Error("a lease has run out in no time")
	}
}

// TestATurnThatWasGrantedBeforeIsRenewedFirst: nobody knows since when its lease runs.
func TestATurnThatWasGrantedBeforeIsRenewedFirst(t *testing.T) {
	c, s := holding(t)
	s.held = true
	if err := c.HoldTurn(t.Context(), someTurn, func(context.Context, *rotav1.Turn) error {
		if s.count() < 3 {
			t.Error("works before a renewal was answered")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	s.silent = true
	ctx, cancel := context.WithTimeout(t.Context(), turnLease)
	defer cancel()
	if err := c.HoldTurn(ctx, someTurn, func(context.Context, *rotav1.Turn) error {
		t.Error("works under a lease that was never renewed")
		return nil
	}); err == nil {
		t.Error("no renewal was answered, and no error")
	}
}

// TestAGrantAfterAnOutageIsRenewedFirst: its lease is counted from the first try, which
// is longer ago than the lease lasts.
func TestAGrantAfterAnOutageIsRenewedFirst(t *testing.T) {
	c, s := holding(t)
	s.outage = time.Now().Add(turnLease)
	err := c.HoldTurn(t.Context(), someTurn, func(ctx context.Context, _ *rotav1.Turn) error {
		if s.count() < 3 {
			t.Error("works before a renewal was answered")
		}
		select {
		case <-ctx.Done():
			t.Errorf("canceled at once: %v", context.Cause(ctx))
		case <-time.After(turnMargin):
		}
		return nil
	})
	if err != nil || s.yielded.GetFailed() {
		t.Errorf("ends with %v, yielded %v", err, s.yielded)
	}
}

// TestAHolderThatIsToStopKeepsItsLease while it stops.
func TestAHolderThatIsToStopKeepsItsLease(t *testing.T) {
	c, s := holding(t)
	err := c.HoldTurn(t.Context(), someTurn, func(ctx context.Context, _ *rotav1.Turn) error {
		s.set(func() { s.turn.Stop, s.turn.Revision = true, 3 })
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrTurnStop) {
			t.Errorf("canceled with %v, want ErrTurnStop", context.Cause(ctx))
		}
		before := s.count()
		select {
		case <-HoldOf(ctx).Lost():
			t.Error("lost though it is renewed")
		case <-time.After(2 * turnLease):
		}
		if s.count() <= before {
			t.Error("not renewed while it stops")
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, ErrTurnStop) || errors.Is(err, ErrTurnLost) {
		t.Errorf("ends with %v, want ErrTurnStop", err)
	}
	if y := s.yielded; y.GetToken() != 5 || !y.Failed {
		t.Errorf("yielded with %v, want it failed: the work was cut off", y)
	}
}

// TestWhoStopsWaitingCancels the turn, so that nobody is granted it.
func TestWhoStopsWaitingCancels(t *testing.T) {
	c, s := holding(t)
	s.renewals = 1000                                              // never granted
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // enough to ask on a busy machine
	defer cancel()
	err := c.HoldTurn(ctx, someTurn, func(context.Context, *rotav1.Turn) error { panic("not granted") })
	if !errors.Is(err, context.DeadlineExceeded) || s.yielded.GetTurnId() != 7 || s.yielded.Token != 0 {
		t.Errorf("ends with %v, yielded %v", err, s.yielded)
	}
}

// TestAWaitForATurnEnds when no server answers any more, though the caller would wait for ever.
func TestAWaitForATurnEnds(t *testing.T) {
	c, s := holding(t)
	c.config.RetryFor = time.Second
	asked := func(*holder) { s.set(func() { s.silent = true }) } // the turn waits, and has an ID
	err := c.HoldTurn(t.Context(), someTurn, func(context.Context, *rotav1.Turn) error { panic("not granted") }, asked)
	if err == nil || !strings.Contains(err.Error(), "no server has answered for 1s") || s.yielded.GetTurnId() != 7 {
		t.Errorf("ends with %v, yielded %v", err, s.yielded)
	}
}
