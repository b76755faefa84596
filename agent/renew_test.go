package agent

import (
	"math"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/httpx"

	"rota/agent/plan"
	"rota/internal/clock"
)

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
	const lease, margin = 4 * time.Second, time.Second
	s := newServers(hclog.NewNullLogger(), httpx.NewClient(nil), false, append(addresses, c.addresses...), "node-1")
	defer s.http.CloseIdleConnections()
	s.use(s.all[0])
	a := &agent{log: hclog.NewNullLogger(), servers: s, driver: newDriver(registered(lease, margin)), metrics: newMetrics(), traces: newTraces(nil)}
	pause := newRounds(lease/200, lease/12)
	begin := time.Now()
	for renewed := false; !renewed; {
		due := a.driver.next()
		for _, step := range due.steps {
			switch step := step.(type) {
			case plan.Renew:
				a.renew(t.Context(), step, pause)
			case plan.Arm: // there is a deadline to tell the supervisor
				renewed = true
			}
		}
		if time.Since(begin) > lease-margin {
			t.Fatal("not renewed within the lease")
		}
		time.Sleep(due.wait)
	}
	if s.current().addr != c.addresses[0] {
		t.Error("it did not stay with the server that answers")
	}
}

// registered is the plan of a node in incarnation 1, before the first renewal.
func registered(lease, margin time.Duration) *plan.Plan {
	p := plan.New(1, nil)
	p.Connected(nil, nil, true, clock.Boottime())
	p.Next(clock.Boottime())
	p.Registered(plan.Terms{Incarnation: 1, LeaseNS: int64(lease), MarginNS: int64(margin)})
	return p
}

// A machine that was suspended finds out within a quarter of a second, though
// timers stood still: the clock of the lease did not.
func TestTheDriverNeverWaitsLong(t *testing.T) {
	for _, c := range []struct {
		again int64
		want  time.Duration
	}{{90, 0}, {100, 0}, {107, 7}, {100 + int64(time.Hour), pollMax}, {math.MaxInt64, pollMax}} {
		if got := untilNext(c.again, 100); got != c.want {
			t.Errorf("due at %d, asked at 100: waits %v, want %v", c.again, got, c.want)
		}
	}
}
