package replica

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rota/api/gen/peer/v1/peerv1connect"
)

// impatient replicas tell soon what a change waits for.
func impatient(cfg *Config) { cfg.AdmitWait = 300 * time.Millisecond }

// newServer starts a server that is no member.
func (c *cluster) newServer(id string) *node {
	c.t.Helper()
	nd := &node{id: id, stream: listen(c.t, "127.0.0.1:0"), dir: c.t.TempDir()}
	nd.address = nd.stream.Addr().String()
	c.nodes = append(c.nodes, nd)
	c.start(nd, nil)
	return nd
}

// join adds a server without a vote.
func (c *cluster) join(nd *node) {
	c.t.Helper()
	if err := c.leader().replica.AddPeer(c.ctx(), nd.id, nd.address, false); err != nil {
		c.t.Fatal(err)
	}
}

// refuses checks that a change was refused for the reason, and changed nothing.
func (c *cluster) refuses(what string, want error, change func(*Replica) error) {
	c.t.Helper()
	lead := c.leader()
	before, _ := lead.replica.Peers(c.ctx())
	err := change(lead.replica)
	if !errors.Is(err, want) {
		c.t.Errorf("%s: %v, want %v", what, err, want)
	}
	if after, _ := lead.replica.Peers(c.ctx()); !slices.Equal(before, after) {
		c.t.Errorf("%s: members %+v, before %+v", what, after, before)
	}
	c.propose(lead, what)
}

// Addresses where nobody listens, or somebody else, have cost a cluster its majority.
func TestOnlyServersThatAnswerBecomeMembers(t *testing.T) {
	c := newCluster(t, 3, impatient)
	lead, other := c.leader(), c.followers()[0]
	s4 := c.newServer("s4")
	add := func(id, address string, voter bool) func(*Replica) error {
		return func(r *Replica) error { return r.AddPeer(c.ctx(), id, address, voter) }
	}
	move := func(id, address string) func(*Replica) error {
		return func(r *Replica) error { return r.MovePeer(c.ctx(), id, address) }
	}
	const nowhere = "127.0.0.1:1"
	c.refuses("a vote for a stranger", ErrNotJoined, add("s4", s4.address, true))
	c.refuses("a vote for nobody", ErrNotJoined, add("s5", nowhere, true))
	c.refuses("nobody joins", ErrNotReady, add("s5", nowhere, false))
	c.refuses("a server under another ID", ErrWrongServer, add("s5", s4.address, false))
	c.refuses("the leader under another ID", ErrAddressInUse, add("s5", lead.address, false))
	c.refuses("a member's address", ErrAddressInUse, add("s4", other.address, false))
	c.refuses("a voter elsewhere, by add-voter", ErrOtherAddress, add(other.id, nowhere, true))
	c.refuses("a voter elsewhere, by join", ErrOtherAddress, add(other.id, s4.address, false))
	c.refuses("a move to nowhere", ErrNotReady, move(other.id, nowhere))
	c.refuses("a move to another server", ErrWrongServer, move(other.id, s4.address))
	c.refuses("a move to a member", ErrAddressInUse, move(other.id, lead.address))
	c.refuses("a move of a stranger", ErrUnknownPeer, move("s4", s4.address))

	c.join(s4)
	for _, voter := range []bool{false, true, true, false} { // what is so already is no error
		if err := c.leader().replica.AddPeer(c.ctx(), "s4", s4.address, voter); err != nil {
			t.Fatalf("add s4, voter %v: %v", voter, err)
		}
	}
	peers, _ := c.leader().replica.Peers(c.ctx())
	if len(peers) != 4 || !peers[3].Voter {
		t.Errorf("members %+v", peers)
	}
	c.agree()
}

// A server that reaches the leader under a second address would depose it.
func TestAnAliasOfAMemberIsRefused(t *testing.T) {
	c := newCluster(t, 1, impatient)
	lead := c.leader()
	alias := strings.Replace(lead.address, "127.0.0.1", "localhost", 1)
	c.mu.Lock()
	c.peers[alias] = c.peers[lead.address]
	c.mu.Unlock()
	c.refuses("an alias", ErrWrongServer, func(r *Replica) error { return r.AddPeer(c.ctx(), "s2", alias, false) })
	c.refuses("an alias for itself", ErrWrongServer, func(r *Replica) error { return r.MovePeer(c.ctx(), lead.id, alias) })
}

// A server with the data of another cluster would bring that one's term along.
func TestAServerOfAnotherClusterIsRefused(t *testing.T) {
	name := "one"
	c := newCluster(t, 1, func(cfg *Config) {
		impatient(cfg)
		own := name
		cfg.ClusterID = func() string { return own }
	})
	name = "two"
	stranger := c.newServer("s2")
	c.refuses("a stranger", ErrWrongServer, func(r *Replica) error { return r.AddPeer(c.ctx(), "s2", stranger.address, false) })
}

// An empty server votes only when its quarantine is over, and so does not count before:
// a leader that hands over to it would be refused.
func TestAVoteWaitsForTheEndOfQuarantine(t *testing.T) {
	var mute atomic.Bool
	mute.Store(true)
	c := newCluster(t, 1, func(cfg *Config) {
		impatient(cfg)
		client := cfg.PeerClient
		cfg.PeerClient = func(address string) peerv1connect.PeerServiceClient {
			if cfg.ServerID == "s2" && mute.Load() {
				return client("nowhere") // so that s2 cannot learn how far the log reaches
			}
			return client(address)
		}
	})
	s2 := c.newServer("s2")
	c.join(s2)
	c.agree()
	vote := func(r *Replica) error { return r.AddPeer(c.ctx(), "s2", s2.address, true) }
	c.refuses("a vote in quarantine", ErrNotReady, vote)

	done := make(chan error, 1)
	c.leader().replica.cfg.AdmitWait = testPatience
	go func() { done <- vote(c.nodes[0].replica) }()
	time.Sleep(100 * time.Millisecond)
	mute.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s2.replica.Status().Quarantined {
		t.Error("s2 has a vote and is in quarantine")
	}
	if err := c.nodes[0].replica.TransferLeadership(c.ctx(), "s2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "s2 leads", s2.replica.IsLeader)
}

// With one of three voters away, a fourth would make two of four necessary, and be one
// of those that may fail next.
func TestNoVoterIsAddedWhileAnotherIsAway(t *testing.T) {
	c := newCluster(t, 3, impatient)
	s4 := c.newServer("s4")
	c.join(s4)
	away, stays := c.followers()[0], c.followers()[1]
	c.kill(away)
	c.refuses("a vote", ErrVoterAbsent, func(r *Replica) error { return r.AddPeer(c.ctx(), "s4", s4.address, true) })
	c.refuses("removal of a voter that works", ErrNoMajority, func(r *Replica) error { return r.RemovePeer(c.ctx(), stays.id) })
	c.refuses("removal of the leader", ErrNoMajority, func(r *Replica) error { return r.RemovePeer(c.ctx(), c.leader().id) })
	if err := c.leader().replica.RemovePeer(c.ctx(), away.id); err != nil {
		t.Fatal(err)
	}
	if err := c.leader().replica.AddPeer(c.ctx(), "s4", s4.address, true); err != nil {
		t.Fatal(err)
	}
	c.propose(c.leader(), "with s4")
}

func TestTheOnlyVoterStays(t *testing.T) {
	c := newCluster(t, 1, impatient)
	c.refuses("removal", ErrNoMajority, func(r *Replica) error { return r.RemovePeer(c.ctx(), "s1") })
	c.refuses("transfer", ErrOnlyVoter, func(r *Replica) error { return r.TransferLeadership(c.ctx(), "") })
}

func TestAVoterMovesToAnotherAddress(t *testing.T) {
	c := newCluster(t, 3, impatient)
	moved, third := c.followers()[0], c.followers()[1]
	c.kill(moved)
	moved.stream = listen(t, "127.0.0.1:0")
	moved.address = moved.stream.Addr().String()
	c.start(moved, nil)
	if err := c.leader().replica.MovePeer(c.ctx(), moved.id, moved.address); err != nil {
		t.Fatal(err)
	}
	c.kill(third) // so that the one that has moved is needed
	c.propose(c.leader(), "two of three")
	eventually(t, "all is applied", func() bool { return slices.Contains(moved.machine.view().Names, "two of three") })
}

// What a transfer cannot do is said before the leader stops deciding.
func TestATransferSaysWhyItFails(t *testing.T) {
	var deaf atomic.Bool
	c := newCluster(t, 3, func(cfg *Config) {
		impatient(cfg)
		cfg.intercept = func(cmd any) any {
			if _, ok := cmd.(*raft.TimeoutNowRequest); ok && deaf.Load() {
				return &raft.TimeoutNowResponse{}
			}
			return nil
		}
	})
	s4 := c.newServer("s4")
	c.join(s4)
	gone, other := c.followers()[0], c.followers()[1]
	to := func(id string) func(*Replica) error {
		return func(r *Replica) error { return r.TransferLeadership(c.ctx(), id) }
	}
	c.refuses("to a stranger", ErrUnknownPeer, to("s9"))
	c.refuses("to one without a vote", ErrNotVoter, to("s4"))
	deaf.Store(true)
	c.refuses("to one that does not stand", ErrTransferFailed, to(other.id))
	deaf.Store(false)
	c.kill(gone)
	c.refuses("to one that is gone", ErrNotReady, to(gone.id))
	if err := c.leader().replica.TransferLeadership(c.ctx(), c.leader().id); err != nil {
		t.Errorf("to itself: %v", err)
	}
	if err := c.leader().replica.TransferLeadership(c.ctx(), ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other leads", other.replica.IsLeader)
}

// A voter that becomes a spare stays a member, and gets its vote back.
func TestAVoteIsTakenAndGivenBack(t *testing.T) {
	c := newCluster(t, 3, impatient)
	spare, other := c.followers()[0], c.followers()[1]
	demote := func(id string) func(*Replica) error {
		return func(r *Replica) error { return r.DemotePeer(c.ctx(), id) }
	}
	c.refuses("a stranger", ErrUnknownPeer, demote("s9"))
	c.refuses("the leader", ErrLeaderVotes, demote(c.leader().id))
	for range 2 { // what is so already is no error
		if err := c.leader().replica.DemotePeer(c.ctx(), spare.id); err != nil {
			t.Fatal(err)
		}
	}
	peers, _ := c.leader().replica.Peers(c.ctx())
	if len(peers) != 3 || slices.ContainsFunc(peers, func(p Peer) bool { return p.Voter == (p.ID == spare.id) }) {
		t.Errorf("members %+v", peers)
	}
	c.propose(c.leader(), "with a spare")
	c.agree()
	if err := c.leader().replica.AddPeer(c.ctx(), spare.id, spare.address, true); err != nil {
		t.Fatal(err)
	}
	c.kill(other)
	c.refuses("one of two voters that answer", ErrNoMajority, demote(spare.id))
	if err := c.leader().replica.DemotePeer(c.ctx(), other.id); err != nil {
		t.Fatalf("the dead one: %v", err)
	}
	c.propose(c.leader(), "without the dead one")
}

// The zone of a server that died is known to the next leader.
func TestANewLeaderKnowsTheZoneOfTheOldOne(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		impatient(cfg)
		cfg.Zone = "of " + cfg.ServerID
	})
	zones := func() map[string]string {
		seen, err := c.leader().replica.Survey(c.ctx())
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]string{}
		for _, s := range seen {
			told[s.ID] = s.Zone
		}
		return told
	}
	want := map[string]string{"s1": "of s1", "s2": "of s2", "s3": "of s3"}
	for range 2 { // the second tells the others what the first found
		if got := zones(); !maps.Equal(got, want) {
			t.Errorf("zones %v", got)
		}
	}
	c.kill(c.leader())
	if got := zones(); !maps.Equal(got, want) {
		t.Errorf("the new leader knows %v", got)
	}
}
