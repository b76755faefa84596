package replica

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	peerv1 "rota/api/gen/peer/v1"
	"rota/api/gen/peer/v1/peerv1connect"
)

// describing lets a test look at each question what a server is, before it is asked.
type describing struct {
	peerv1connect.PeerServiceClient
	before func(ctx context.Context) error
}

func (d describing) Describe(ctx context.Context, req *peerv1.DescribeRequest) (*peerv1.DescribeResponse, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	return d.PeerServiceClient.Describe(ctx, req)
}

// Of four voters one is dead, so one more may go. Two that are removed at once, each after a
// look at all four, would leave a cluster that decides nothing.
func TestTwoChangesAtOnceKeepTheMajority(t *testing.T) {
	const changes = 2
	var meet atomic.Bool
	var looked sync.WaitGroup // until both changes have looked at the leader
	looked.Add(changes)
	address := ""
	c := newCluster(t, 4, func(cfg *Config) {
		cfg.AdmitWait = time.Nanosecond // one try
		client := cfg.PeerClient
		cfg.PeerClient = func(to string) peerv1connect.PeerServiceClient {
			if !meet.Load() || to != address {
				return client(to)
			}
			return describing{client(to), func(context.Context) error {
				looked.Done()
				looked.Wait()
				return nil
			}}
		}
	})
	lead, followers := c.leader(), c.followers()
	address = lead.address
	c.kill(followers[2])
	c.propose(lead, "before")
	meet.Store(true)
	answers := make(chan error, changes)
	for _, nd := range followers[:changes] {
		go func() { answers <- lead.replica.RemovePeer(c.ctx(), nd.id) }()
	}
	done, refused := 0, 0
	for range changes {
		switch err := <-answers; {
		case err == nil:
			done++
		case errors.Is(err, ErrChanging):
			refused++
		default:
			t.Error(err)
		}
	}
	if done != 1 || refused != 1 {
		t.Errorf("%d changes were made and %d refused, want one each", done, refused)
	}
	c.propose(lead, "after")
}

// The index of the newest configuration is what raft compares a change with.
func TestTheConfigurationHasAnIndex(t *testing.T) {
	c := newCluster(t, 1, impatient)
	lead := c.leader()
	index := func() uint64 {
		m, err := lead.replica.configuration(c.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return m.index
	}
	if got := index(); got != bootstrapIndex {
		t.Errorf("a new cluster: %d", got)
	}
	c.propose(lead, "x")
	c.join(c.newServer("s2"))
	var e raft.Log
	if err := lead.replica.store.logs.GetLog(index(), &e); err != nil || e.Type != raft.LogConfiguration || e.Index == bootstrapIndex {
		t.Errorf("with a server that joined: %+v, %v", e, err)
	}
	_, err := c.followers()[0].replica.configuration(c.ctx())
	if !errors.Is(err, ErrNotLeader) {
		t.Errorf("on a follower: %v", err)
	}
}

// A voter in quarantine answers and does not vote, so it counts as absent.
func TestAVoterInQuarantineIsNoMajority(t *testing.T) {
	var mute atomic.Bool
	c := newCluster(t, 3, nil)
	lead, quarantined, other := c.leader(), c.followers()[0], c.followers()[1]
	lead.replica.cfg.AdmitWait = 300 * time.Millisecond
	c.edit = func(cfg *Config) {
		impatient(cfg)
		client := cfg.PeerClient
		cfg.PeerClient = func(address string) peerv1connect.PeerServiceClient {
			if cfg.ServerID == quarantined.id && mute.Load() {
				return client("nowhere") // so that it cannot learn how far the log reaches
			}
			return client(address)
		}
	}
	s4 := c.newServer("s4")
	c.join(s4)
	c.kill(quarantined)
	c.wipe(quarantined)
	mute.Store(true)
	c.start(quarantined, nil)
	c.refuses("a further voter", ErrVoterAbsent, func(r *Replica) error { return r.AddPeer(c.ctx(), "s4", s4.address, true) })
	c.refuses("removal", ErrNoMajority, func(r *Replica) error { return r.RemovePeer(c.ctx(), other.id) })
	c.refuses("a vote less", ErrNoMajority, func(r *Replica) error { return r.DemotePeer(c.ctx(), other.id) })
	if err := lead.replica.RemovePeer(c.ctx(), quarantined.id); err != nil {
		t.Fatalf("the one in quarantine: %v", err)
	}
	c.propose(lead, "without it")
}
