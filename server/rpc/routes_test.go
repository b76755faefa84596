package rpc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/server/rpc"
)

// losing is a server that loses sight of the leader when the test says so.
type losing struct {
	*outage
	lost atomic.Bool
}

func (l *losing) Leader() (id, addr string) {
	if l.lost.Load() {
		return l.outage.Leader()
	}
	return l.world.Leader()
}

func (l *losing) ReadIndex(ctx context.Context) (uint64, error) {
	if l.lost.Load() {
		return l.outage.ReadIndex(ctx)
	}
	return l.world.ReadIndex(ctx)
}

func newLosing(t *testing.T, peers []*rotav1.Peer, views map[string][]*rotav1.Peer) *losing {
	l := &losing{outage: &outage{peers: peers, views: views}}
	l.world = newWorld(t, func(d *rpc.Deps) {
		d.Replica, d.Cluster = l, l
		d.Operator = func(addr string) rotav1connect.OperatorServiceClient { return other{o: l.outage, addr: addr} }
	})
	rpc.SetRoutesTick(l.server, 10*time.Millisecond)
	return l
}

// TestAWatchOfRoutesEndsWithoutALeader, as another server may have one: what it begins with then
// is stale, unless the server will never know more.
func TestAWatchOfRoutesEndsWithoutALeader(t *testing.T) {
	three := []*rotav1.Peer{member("s1", true, false), member("s2", true, false), member("s3", true, false)}
	led := []*rotav1.Peer{member("s2", true, true), member("s3", true, false)}
	for _, tt := range []struct {
		name, reason string
		views        map[string][]*rotav1.Peer
		never        bool // another watch does not even begin
	}{
		{"an election", "NO_LEADER", map[string][]*rotav1.Peer{"s2": three, "s3": three}, false},
		{"no quorum", "NO_QUORUM", nil, false},
		{"removed", "NOT_A_MEMBER", map[string][]*rotav1.Peer{"s2": led, "s3": led}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t, three, tt.views)
			watch := l.watchRoutes(t, "")
			watch.until("the begin", func() bool { return watch.stream.Msg().Complete })
			if watch.stream.Msg().Stale {
				t.Error("with a leader it is stale")
			}
			for range 2 * 3 { // more ticks than it takes
				watch.until("a leader is known", func() bool { return true })
			}
			l.lost.Store(true)
			for watch.stream.Receive() {
			}
			if d := detailOf(watch.stream.Err()); d.GetReason() != tt.reason || (d.GetRetryDelay() != nil) == tt.never {
				t.Errorf("it ended with %v", watch.stream.Err())
			}
			again := l.watchRoutes(t, "")
			began := again.stream.Receive()
			switch m := again.stream.Msg(); {
			case tt.never && (began || detailOf(again.stream.Err()).GetReason() != tt.reason):
				t.Errorf("another watch: %v, %v", m, again.stream.Err())
			case !tt.never && !(m.GetStale() && m.GetReset_() && m.GetComplete()):
				t.Errorf("another watch: %v, %v", m, again.stream.Err())
			}
		})
	}
}
