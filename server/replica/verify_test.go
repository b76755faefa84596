package replica

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"rota/server/quorum"
)

// An answer to a message that was sent before a question does not count for the
// question: it can be older than the election of another leader.
func TestAnAnswerCountsForEarlierQuestionsOnly(t *testing.T) {
	const quiet = int64(1) // messages pass; else they wait here
	var gate atomic.Int64
	gate.Store(quiet)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	// Raft's own heartbeats are far apart, so that the test sees verifications.
	c, lead := newQuietCluster(t, 3, 20*time.Second, func(cfg *Config) {
		cfg.intercept = func(cmd any) any {
			if a, ok := cmd.(*raft.AppendEntriesRequest); ok && gate.Load() != quiet && a.PrevLogEntry == 0 && len(a.Entries) == 0 {
				arrived <- struct{}{}
				<-release
			}
			return nil
		}
	})
	c.propose(lead, "x")
	gate.Store(0)
	verify := lead.replica.lead.Load().verify

	first := make(chan error, 1)
	go func() { first <- verify.confirms(c.ctx()) }()
	<-arrived
	<-arrived // both followers hold the message of the first question
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	second := make(chan error, 1)
	go func() { second <- verify.confirms(ctx) }()
	eventually(t, "the second question is drawn", func() bool { return verify.drawn() >= 2 })
	release <- struct{}{} // one of them answers, and holds the next message
	if err := <-first; err != nil {
		t.Errorf("the first question: %v", err)
	}
	if err := <-second; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second question ends with %v though nobody was asked after it", err)
	}
	gate.Store(quiet)
	close(release)
	if err := verify.confirms(c.ctx()); err != nil {
		t.Errorf("when all answer: %v", err)
	}
}

// A leader whose followers are gone may have been deposed. It does not know yet, and answers no
// read.
func TestALeaderThatNobodyConfirmsAnswersNoRead(t *testing.T) {
	c, lead := newQuietCluster(t, 3, 20*time.Second, nil)
	c.propose(lead, "x")
	if _, err := lead.replica.ReadIndexLocal(c.ctx()); err != nil {
		t.Fatalf("a read while all answer: %v", err)
	}
	for _, nd := range c.followers() {
		c.kill(nd)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if index, err := lead.replica.ReadIndexLocal(ctx); err == nil {
		t.Errorf("a read at %d is answered though nobody confirmed the leader", index)
	}
	if lead.replica.lead.Load() == nil {
		t.Error("the leader has stepped down: the test shows nothing")
	}
}

// confirms is verify without an index.
func (v *verifier) confirms(ctx context.Context) error {
	_, err := v.verify(ctx, 0)
	return err
}

// drawn is the newest ticket while a question waits.
func (v *verifier) drawn() quorum.Ticket {
	v.mu.Lock()
	defer v.mu.Unlock()
	ticket, _ := v.rules.Send("any voter")
	return ticket
}

// The last other voter is removed while the leader waits for its answer. The leader is the
// majority then, and needs no answer.
func TestTheLastOtherVoterIsRemovedWhileItIsAsked(t *testing.T) {
	var hold atomic.Bool
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	// The removal does not wait for raft's own heartbeats, which the other voter holds.
	c, lead := newQuietCluster(t, 2, 20*time.Second, func(cfg *Config) {
		cfg.intercept = func(cmd any) any {
			if a, ok := cmd.(*raft.AppendEntriesRequest); ok && hold.Load() && a.PrevLogEntry == 0 && len(a.Entries) == 0 {
				arrived <- struct{}{}
				<-release
			}
			return nil
		}
	})
	c.propose(lead, "x")
	other := c.followers()[0]
	hold.Store(true)
	verify := lead.replica.lead.Load().verify
	asked := make(chan error, 1)
	go func() { asked <- verify.confirms(c.ctx()) }()
	<-arrived
	if err := lead.replica.raft.RemoveServer(raft.ServerID(other.id), 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	hold.Store(false)
	close(release)
	if err := <-asked; err != nil {
		t.Errorf("the question ends with %v", err)
	}
	if err := verify.confirms(c.ctx()); err != nil {
		t.Errorf("a question when no other voter is left ends with %v", err)
	}
}

// sentRequests is a pipeline that remembers what is sent.
type sentRequests struct {
	raft.AppendPipeline
	sent []raft.AppendEntriesRequest
}

func (s *sentRequests) AppendEntries(req *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	s.sent = append(s.sent, *req)
	return nil, nil
}

// A notice says of no entry that it is committed which this pipeline has not sent: the
// follower may have another one at its index.
func TestANoticeReachesNoFurtherThanWhatWasSent(t *testing.T) {
	sent := new(sentRequests)
	p := &pipeline{AppendPipeline: sent}
	send := func(index uint64) {
		if _, err := p.AppendEntries(&raft.AppendEntriesRequest{
			Term: 4, PrevLogEntry: index - 1, PrevLogTerm: 4, Entries: []*raft.Log{{Index: index, Term: 4}}, LeaderCommitIndex: index - 1,
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	send(10)
	for _, step := range []struct {
		what   string
		commit position
		want   uint64 // commit index of the notice; 0: none
	}{
		{"beyond what was sent", position{index: 12, term: 4}, 10},
		{"again", position{index: 12, term: 4}, 0},
		{"of another term", position{index: 12, term: 5}, 0},
	} {
		before := len(sent.sent)
		p.tell(step.commit)
		var got uint64
		for _, req := range sent.sent[before:] {
			got = req.LeaderCommitIndex
			if req.PrevLogEntry != 10 || len(req.Entries) != 0 {
				t.Errorf("%s: sent %+v", step.what, req)
			}
		}
		if got != step.want {
			t.Errorf("%s: a notice of %d, want %d", step.what, got, step.want)
		}
	}
	send(11)
	p.tell(position{index: 11, term: 4})
	if last := sent.sent[len(sent.sent)-1]; last.LeaderCommitIndex != 11 {
		t.Errorf("after more was sent: a notice of %d, want 11", last.LeaderCommitIndex)
	}
}
