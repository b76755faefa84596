package replica

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"

	"rota/server/quorum"
)

// Followers learn that an entry is committed from the next message of their
// leader. If no entry follows, raft waits for its CommitTimeout, 50 to 100 ms,
// and agents and watchers that are connected to a follower wait as long. A
// shorter time-out would be paid for all the time; a notice is sent only when
// there is something to tell: after a commit that nothing else follows, the
// leader sends the empty AppendEntries at once that raft would send later.

// pipeline is raft's pipeline to one follower, which also carries notices.
type pipeline struct {
	raft.AppendPipeline
	closed func()

	mu     sync.Mutex                // orders requests, which raft sends without one
	newest raft.AppendEntriesRequest // without its entries; Prev is what it ended with
	rules  quorum.Notices

	wake    chan position // a commit to tell
	answers chan raft.AppendFuture
	stop    chan struct{}
	once    sync.Once
}

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{
		AppendPipeline: inner, wake: make(chan position, 1),
		answers: make(chan raft.AppendFuture), stop: make(chan struct{}),
	}
	p.closed = func() { t.pipelines.Delete(p) }
	t.pipelines.Store(p, nil)
	go p.run()
	go p.passAnswers()
	select {
	case <-t.stop: // closePipelines may have missed it
		return nil, errors.Join(raft.ErrTransportShutdown, p.Close())
	default:
		return p, nil
	}
}

// closePipelines ends all pipelines, so that raft does not wait for a follower that is silent
// before it ends its replication to it.
func (t *transport) closePipelines() {
	t.pipelines.Range(func(p, _ any) bool {
		go p.(*pipeline).Close() // TLS may wait for room; raft sees the error of its next request
		return true
	})
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	future, err := p.AppendPipeline.AppendEntries(req, resp)
	if err != nil {
		return nil, err
	}
	p.newest = *req
	p.newest.Entries = nil
	if n := len(req.Entries); n > 0 {
		p.newest.PrevLogEntry, p.newest.PrevLogTerm = req.Entries[n-1].Index, req.Entries[n-1].Term
	}
	p.rules.Sent(req.Term, p.newest.PrevLogEntry, req.LeaderCommitIndex)
	return future, nil
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// passAnswers takes each answer at once, and keeps it until raft reads it. After a failure raft
// reads no more, and closes the pipeline when its last request was sent. That waits for the
// pipeline to read answers, which stops at the first that nobody takes: raft has one request
// under way then, and a notice is one more.
func (p *pipeline) passAnswers() {
	var waiting []raft.AppendFuture
	for {
		var oldest raft.AppendFuture
		var to chan<- raft.AppendFuture
		if len(waiting) > 0 {
			oldest, to = waiting[0], p.answers
		}
		select {
		case answer := <-p.AppendPipeline.Consumer():
			waiting = append(waiting, answer)
		case to <- oldest:
			waiting = waiting[1:]
		case <-p.stop:
			return
		}
	}
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() {
		close(p.stop)
		p.closed()
	})
	return p.AppendPipeline.Close()
}

func (p *pipeline) run() {
	for {
		select {
		case commit := <-p.wake:
			p.tell(commit)
		case <-p.stop:
			return
		}
	}
}

// tell sends a notice that the entry at commit is committed, if there is something to
// tell. The answer goes to raft, like that of any other request.
func (p *pipeline) tell(commit position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index := p.rules.Next(commit.index, commit.term)
	if index == 0 {
		return
	}
	req := p.newest
	req.LeaderCommitIndex = index
	if _, err := p.AppendPipeline.AppendEntries(&req, new(raft.AppendEntriesResponse)); err == nil {
		p.rules.Sent(req.Term, req.PrevLogEntry, index)
	}
}

// announce tells all followers that an entry of this leader is committed.
func (t *transport) announce(commit position) {
	t.pipelines.Range(func(p, _ any) bool {
		select {
		case p.(*pipeline).wake <- commit:
		default: // it is about to send one, or raft has sent something newer
		}
		return true
	})
}

// announce is called with each entry that was committed. Under load the next
// entry tells followers soon enough.
func (r *Replica) announce(index uint64) {
	if r.local.queued() > 0 {
		return
	}
	var entry raft.Log
	if err := r.store.logs.GetLog(index, &entry); err == nil {
		r.trans.announce(position{index: index, term: entry.Term})
	}
}
