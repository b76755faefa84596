package agent

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"

	"rota/agent/lease"
	"rota/internal/clock"
)

// clocked runs a test with a lease of 6 s and a margin of 1.5 s, on a clock
// that only moves when everybody waits.
func clocked(t *testing.T, test func(t *testing.T, l *lease.Lease)) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		l := lease.New(func() int64 { return 1 + int64(time.Since(begin)) })
		l.Begin(6*time.Second, 1500*time.Millisecond)
		test(t, l)
	})
}

func TestTheEndOfALeaseIsNoticedAtOnce(t *testing.T) {
	clocked(t, func(t *testing.T, l *lease.Lease) {
		l.Extend(l.Now())
		go func() {
			time.Sleep(3 * time.Second)
			l.Extend(l.Now()) // until 7.5 s
		}()
		begin := time.Now()
		if err := watchLease(t.Context(), l); !errors.Is(err, errLeaseLost) {
			t.Errorf("watch: %v, want errLeaseLost", err)
		}
		if got, want := time.Since(begin), 7500*time.Millisecond; got != want {
			t.Errorf("noticed after %v, want %v", got, want)
		}
	})
}

func TestWithoutAFirstRenewalThereIsNothingToLose(t *testing.T) {
	clocked(t, func(t *testing.T, l *lease.Lease) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := watchLease(ctx, l); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("watch: %v", err)
		}
	})
}

// A machine that was suspended finds out within a quarter of a second, though
// timers stood still: the clock of the lease did not.
func TestTheEndOfALeaseDuringASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, slept := time.Now(), time.Duration(0)
		l := lease.New(func() int64 { return 1 + int64(time.Since(begin)+slept) })
		l.Begin(6*time.Second, 1500*time.Millisecond)
		l.Extend(l.Now())
		slept = time.Hour
		if err := watchLease(t.Context(), l); !errors.Is(err, errLeaseLost) {
			t.Errorf("watch: %v", err)
		}
		if waited := time.Since(begin); waited > leasePoll {
			t.Errorf("noticed after %v", waited)
		}
	})
}

func TestBackoffTriesEveryServerBeforeItWaits(t *testing.T) {
	b := newRounds(10*time.Millisecond, 100*time.Millisecond)
	for i := range 2 {
		if w := b.next(3); w != 0 {
			t.Errorf("failure %d of 3 servers: waits %v", i+1, w)
		}
	}
	for range 20 {
		if w := b.next(3); w < 5*time.Millisecond || w > 100*time.Millisecond {
			t.Errorf("waits %v", w)
		}
	}
	b.reset()
	if w := b.next(3); w != 0 {
		t.Errorf("after a success: waits %v", w)
	}
}

// Most servers hang, as they do when they are paused: their ports take
// connections and nothing is ever answered. To wait for one after the other
// would take longer than the lease.
func TestALeaseIsKeptThoughMostServersHang(t *testing.T) {
	var addresses []string
	for range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	c := newCluster(t, 1)
	c.incarnation = 1
	s := newServers(hclog.NewNullLogger(), httpx.NewClient(nil), false, append(addresses, c.addresses...), "node-1")
	defer s.http.CloseIdleConnections()
	s.use(s.all[0])
	l := lease.New(clock.Boottime)
	l.Begin(4*time.Second, time.Second)
	l.Extend(l.Now())
	g := newGroup(t.Context())
	renewed := errors.New("renewed")
	g.Go(func(ctx context.Context) error { return watchLease(ctx, l) })
	g.Go((&renewer{
		lease: l, servers: s, req: &rotav1.RenewLeaseRequest{Name: "node-1", Incarnation: 1},
		renewed: func() { g.Go(func(context.Context) error { return renewed }) },
	}).run)
	if err := g.Wait(); !errors.Is(err, renewed) {
		t.Errorf("got %v, want a renewal", err)
	}
	if s.current().addr != c.addresses[0] {
		t.Error("it did not stay with the server that answers")
	}
}
