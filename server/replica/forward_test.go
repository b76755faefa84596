package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	peerv1 "rota/api/gen/peer/v1"
	"rota/api/gen/peer/v1/peerv1connect"
	"rota/fsm/state"
)

// answering is a leader that answers every call with one error.
type answering struct {
	peerv1connect.PeerServiceClient
	err error
}

func (a answering) Propose(context.Context, *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return nil, a.err
}

func (a answering) ReadIndex(context.Context, *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	return nil, a.err
}

// Only what proves that nothing was proposed may be called so.
func TestWhatAForwardFailureMeans(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, tc := range map[string]struct {
		err  error
		want error
	}{
		"refused before sending": {connect.NewError(connect.CodeUnavailable, refused), ErrNoLeader},
		"reset":                  {connect.NewError(connect.CodeUnavailable, syscall.ECONNRESET), ErrUnknownOutcome},
		"time-out":               {connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), ErrUnknownOutcome},
		"made up by the client":  {connect.NewError(connect.CodeFailedPrecondition, errors.New("x")), ErrUnknownOutcome},
		"anything else":          {errors.New("x"), ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			if got := forwardError(tc.err); !errors.Is(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Errors of the leader mean the same on the server that forwarded.
func TestErrorsCrossTheWire(t *testing.T) {
	for _, want := range []error{
		ErrNotLeader, ErrNoLeader, ErrShutdown, ErrTooLarge, ErrUnknownOutcome,
		ErrOverloaded{RetryAfter: 123 * time.Millisecond}, errors.New("whatever"),
	} {
		t.Run(fmt.Sprint(want), func(t *testing.T) {
			got := forwardError(overTheWire(t, peerError(want)))
			switch {
			case errors.Is(want, ErrNotLeader), errors.Is(want, ErrNoLeader):
				want = ErrNoLeader
			case want.Error() == "whatever":
				want = ErrUnknownOutcome
			}
			if !errors.Is(got, want) {
				t.Errorf("arrived as %v, want %v", got, want)
			}
		})
	}
}

// overTheWire returns err as a real client sees it.
func overTheWire(t *testing.T, err error) error {
	t.Helper()
	c := newCluster(t, 0, nil)
	address := c.serve(failing{err: err})
	_, got := peerv1connect.NewPeerServiceClient(c.http, address).Propose(c.ctx(), &peerv1.ProposeRequest{})
	return got
}

type failing struct {
	peerv1connect.UnimplementedPeerServiceHandler
	err error
}

func (f failing) Propose(context.Context, *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return nil, f.err
}

// A call that broke while it was under way is in doubt, and is not repeated.
func TestBrokenForwardIsUnknown(t *testing.T) {
	var broken atomic.Bool // not before all vote: a server that joins asks the leader
	c := newCluster(t, 3, func(cfg *Config) {
		client := cfg.PeerClient
		cfg.PeerClient = func(address string) peerv1connect.PeerServiceClient {
			if !broken.Load() {
				return client(address)
			}
			return answering{err: connect.NewError(connect.CodeUnavailable, syscall.ECONNRESET)}
		}
	})
	f := c.followers()[0]
	broken.Store(true)
	if _, err := f.replica.Propose(c.ctx(), create("x")); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v, want ErrUnknownOutcome", err)
	}
}

// hanging is a leader that takes calls and never answers, as one that is paused.
type hanging struct {
	peerv1connect.PeerServiceClient
	asked chan<- struct{}
}

func (h hanging) Propose(ctx context.Context, _ *peerv1.ProposeRequest) (*peerv1.ProposeResponse, error) {
	return nil, h.hang(ctx)
}

func (h hanging) ReadIndex(ctx context.Context, _ *peerv1.ReadIndexRequest) (*peerv1.ReadIndexResponse, error) {
	return nil, h.hang(ctx)
}

func (h hanging) hang(ctx context.Context) error {
	h.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// What was forwarded to a leader that hangs goes on with its successor, however
// long a call may take.
func TestAReplacedLeaderIsNotWaitedFor(t *testing.T) {
	asked := make(chan struct{}, 100)
	var c *cluster
	var hung atomic.Value // address
	hung.Store("")
	c = newClusterOf(t, 3, func(cfg *Config) {
		cfg.ForwardTimeout, cfg.LeaderWait = time.Hour, time.Hour
		cfg.PeerClient = func(address string) peerv1connect.PeerServiceClient {
			if address == hung.Load() {
				return hanging{asked: asked}
			}
			return c.client(address)
		}
	})
	c.startAll() // the servers ask each other for clients
	lead := c.leader()
	c.propose(lead, "before")
	follower := c.followers()[0]
	hung.Store(lead.address)
	done := make(chan error, 3)
	go func() {
		_, err := follower.replica.ReadIndex(c.ctx())
		done <- err
	}()
	go func() {
		_, err := follower.replica.Propose(c.ctx(), create("x"))
		if errors.Is(err, ErrUnknownOutcome) {
			err = nil // the leader may have committed it before it hung
		}
		done <- err
	}()
	go func() {
		done <- follower.replica.AskLeader(c.ctx(), func(ctx context.Context, address string) error {
			if address == lead.address {
				return hanging{asked: asked}.hang(ctx)
			}
			return nil
		})
	}()
	for range cap(done) {
		<-asked
	}
	lead.stream.partition(true, true)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A server that has just started has not applied yet what activated a feature level. It refuses
// nothing before it knows.
func TestWhatIsActiveIsLearnedFirst(t *testing.T) {
	c := newCluster(t, 1, nil)
	leader := c.leader()
	asked := 0
	for level, refused := range map[state.Level]bool{0: true, state.LevelMin: true, state.LevelMax: false} {
		asked = 0
		leader.machine.mu.Lock()
		leader.machine.level = func() state.Level {
			if asked++; asked <= 2 { // by the first look: at the level, and for the message
				return 0
			}
			return level
		}
		leader.machine.mu.Unlock()
		cmd := create(fmt.Sprint("level-", level))
		cmd.Token = "of feature level 3"
		results, err := leader.replica.Propose(c.ctx(), cmd)
		if err != nil || len(results) != 1 || (results[0].Refusal.GetReason() == "LEVEL_NOT_ACTIVE") != refused {
			t.Errorf("at level %d: %v, %v", level, results, err)
		}
	}
	leader.machine.mu.Lock()
	leader.machine.level = nil
	leader.machine.mu.Unlock()
}
