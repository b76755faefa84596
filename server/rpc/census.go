package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// contactTimeout is how long another server may take to answer.
	contactTimeout = time.Second
	// censusWait is how long a call without a leader waits for the census that says
	// why. Dead processes are found out in a fraction of it.
	censusWait = 250 * time.Millisecond
	// censusPoll is how often it looks meanwhile whether there is a leader again.
	censusPoll = 10 * time.Millisecond
	// censusAge is how long a census is believed.
	censusAge = time.Second
	// namesMax bounds the names in a sentence.
	namesMax = 6
)

// census knows why there is no leader: this server asks the others whether they
// answer. One is taken when a call finds no leader, and calls that come soon after
// share it.
type census struct {
	mu sync.Mutex
	// taken is closed when the one under way is done.
	taken chan struct{}
	at    time.Time
	// found is nil if nothing was found that explains it: an election is under way.
	found *failure
}

// checkLeader returns an error at once if no leader is known and there can be none: a
// call need not wait for one then. Nothing was done about it yet.
func (s *Server) checkLeader() error {
	if s.leaderKnown() {
		return nil
	}
	if f := s.whyNoLeader(); f != nil {
		return f
	}
	return nil
}

func (s *Server) leaderKnown() bool {
	_, addr := s.Replica.Leader()
	return addr != ""
}

// whyNoLeader says why there is no leader: reasons NO_QUORUM and NOT_A_MEMBER; nil if
// it is not known, or there is one by now.
func (s *Server) whyNoLeader() *failure {
	for begin := time.Now(); ; {
		taken, found := s.census.ask(func() { go s.takeCensus() })
		if taken == nil {
			return found
		}
		select {
		case <-taken:
			continue
		case <-time.After(censusPoll):
		}
		if s.leaderKnown() || time.Since(begin) > censusWait {
			return nil
		}
	}
}

// ask returns what the newest census has found, or, where that is too old, a channel
// that is closed when the next one is done.
func (c *census) ask(take func()) (taken <-chan struct{}, found *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.taken != nil:
	case time.Since(c.at) < censusAge:
		return nil, c.found
	default:
		c.taken = make(chan struct{})
		take()
	}
	return c.taken, nil
}

func (s *Server) takeCensus() {
	ctx, cancel := context.WithTimeout(s.draining, contactTimeout)
	defer cancel()
	var found *failure
	if peers, err := s.Cluster.Peers(ctx); err == nil {
		found = s.outage(peers, s.contact(ctx, peers))
	}
	if s.draining.Err() != nil {
		found = nil // no server was asked
	}
	c := &s.census
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.found = time.Now(), found
	close(c.taken)
	c.taken = nil
}

// contact asks all peers for the servers that they know of, and marks each that
// answers.
func (s *Server) contact(ctx context.Context, peers []*rotav1.Peer) (views [][]*rotav1.Peer) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	views = make([][]*rotav1.Peer, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		answers := p.Id == s.ServerID
		p.Answers = &answers
		if answers {
			continue
		}
		wg.Go(func() {
			resp, err := s.Operator(p.Address).ListPeers(ctx, &rotav1.ListPeersRequest{AllowStale: true})
			answers, views[i] = err == nil || hasDetail(err), resp.GetPeers()
		})
	}
	wg.Wait()
	return views
}

// outage says why a server finds no leader, from the members that it knows and what
// each of them said; nil if nothing of that is in the way of one.
func (s *Server) outage(peers []*rotav1.Peer, views [][]*rotav1.Peer) *failure {
	if len(peers) == 0 {
		return unavailable(200*time.Millisecond, "NO_LEADER",
			"server %s belongs to no cluster yet: join it with `rota operator raft join %s ADDRESS` at a member, or start all servers that found one with it", s.ServerID, s.ServerID)
	}
	if !isMember(peers, s.ServerID) {
		return s.notMember(peers)
	}
	for _, view := range views {
		if hasLeader(view) && !isMember(view, s.ServerID) {
			return s.notMember(view)
		}
	}
	return noQuorum(peers)
}

func isMember(peers []*rotav1.Peer, id string) bool {
	for _, p := range peers {
		if p.Id == id {
			return true
		}
	}
	return false
}

func hasLeader(peers []*rotav1.Peer) bool {
	for _, p := range peers {
		if p.Leader {
			return true
		}
	}
	return false
}

func (s *Server) notMember(members []*rotav1.Peer) *failure {
	var at []string
	for _, p := range members {
		at = append(at, p.Id+" at "+p.Address)
	}
	return failed(connect.CodeUnavailable, "NOT_A_MEMBER",
		"server %s is not a member of the cluster, since it was removed: call a member instead, such as %s", s.ServerID, list(at, "or"))
}

// noQuorum is the failure of a cluster in which no majority of the voters answers,
// nil if one does.
func noQuorum(peers []*rotav1.Peer) *failure {
	voters := 0
	var silent []string
	for _, p := range peers {
		if !p.Voter {
			continue
		}
		voters++
		if !p.GetAnswers() {
			silent = append(silent, p.Id)
		}
	}
	answering := voters - len(silent)
	if answering > voters/2 {
		return nil
	}
	verb, do := "answer", "do not"
	if answering == 1 {
		verb = "answers"
	}
	if len(silent) == 1 {
		do = "does not"
	}
	return unavailable(200*time.Millisecond, "NO_QUORUM",
		"no quorum: %d of %d voters %s; %s %s. Nothing was done; start a majority again",
		answering, voters, verb, list(silent, "and"), do)
}

// list writes "a, b and c", and no more names than a person reads.
func list(names []string, conjunction string) string {
	if more := len(names) - namesMax; more > 0 {
		names = append(names[:namesMax:namesMax], fmt.Sprintf("%d more", more))
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " " + conjunction + " " + names[last]
}
