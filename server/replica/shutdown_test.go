package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rota/api/gen/peer/v1/peerv1connect"
)

// A leader that stops hands over to a voter that answers, and does not wait for one that is gone
// as long as the hand-over may take.
func TestAShutdownDoesNotWaitForAVoterThatIsGone(t *testing.T) {
	const electionTimeout = time.Second
	var gone atomic.Pointer[string] // its address
	var waits atomic.Int64
	var handedOver atomic.Bool
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.ElectionTimeout = electionTimeout
		cfg.intercept = func(cmd any) any {
			if _, ok := cmd.(*raft.TimeoutNowRequest); ok {
				handedOver.Store(true)
			}
			return nil
		}
		client := cfg.PeerClient
		cfg.PeerClient = func(to string) peerv1connect.PeerServiceClient {
			if g := gone.Load(); g == nil || to != *g {
				return client(to)
			}
			return describing{client(to), func(ctx context.Context) error {
				began := time.Now()
				<-ctx.Done() // as with a host that takes no packets
				waits.Store(int64(time.Since(began)))
				return ctx.Err()
			}}
		}
	})
	lead := c.leader()
	gone.Store(&c.followers()[0].address)
	c.propose(lead, "x")
	c.shutdown(lead)
	if !handedOver.Load() {
		t.Error("the leadership was not handed over")
	}
	if waited := time.Duration(waits.Load()); waited == 0 || waited >= electionTimeout {
		t.Errorf("waited %v for the voter that is gone", waited)
	}
	c.propose(c.leader(), "y")
}

// Status, and questions of other servers, may still read after the end. That is no damage.
func TestAReadAfterTheEndIsNoCorruption(t *testing.T) {
	eachStore(t, func(t *testing.T, kind StoreKind) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.LogStore = kind })
		nd := c.nodes[0]
		c.propose(c.leader(), "x")
		c.kill(nd)
		c.start(nd, nil) // so that nothing but its own no-op is cached
		r := c.leader().replica
		c.shutdown(nd)
		r.Status()
		if _, err := r.commandAt(r.raft.CommitIndex()); err == nil {
			t.Error("the read succeeds: the test shows nothing")
		}
		select {
		case err := <-nd.exit:
			t.Error(err)
		default:
		}
	})
}
