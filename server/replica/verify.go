package replica

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rota/server/quorum"
)

// verifier asks the followers whether this server still leads in its term. Package quorum
// has the rules; here are the messages. One message per follower is in flight, and it
// serves every caller that waits.
type verifier struct {
	r    *Replica
	lead *leadership

	mu    sync.Mutex
	rules quorum.Leadership[chan confirmation]
	peers map[raft.ServerID]*beat
}

// confirmation is the commit index of the time when the caller asked, or an error.
type confirmation struct {
	index uint64
	err   error
}

// beat is the goroutine that talks to one follower.
type beat struct {
	kick chan struct{}
}

func newVerifier(r *Replica, lead *leadership) *verifier {
	return &verifier{r: r, lead: lead, peers: make(map[raft.ServerID]*beat)}
}

// holds says whether raft still thinks that it leads in this term.
func (v *verifier) holds() bool {
	return v.lead.ctx.Err() == nil && v.r.raft.State() == raft.Leader && v.r.raft.CurrentTerm() == v.lead.term
}

// verify returns once a majority confirmed, after the call, that no later leader had been
// elected. It returns the index that it was given: a read that waits for what was
// committed at the call is linearizable.
func (v *verifier) verify(ctx context.Context, commit uint64) (uint64, error) {
	if !v.holds() {
		return 0, ErrNotLeader
	}
	done := make(chan confirmation, 1)
	v.ask(done, commit)
	select {
	case c := <-done:
		return c.index, c.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-v.lead.ctx.Done():
		return 0, ErrNotLeader
	}
}

func (v *verifier) ask(done chan confirmation, commit uint64) {
	m := v.r.members()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rules.Ask(done, commit)
	v.settle(m)
	for _, s := range m.votersBut(raft.ServerID(v.r.cfg.ServerID)) {
		b, ok := v.peers[s.ID]
		if !ok {
			b = &beat{kick: make(chan struct{}, 1)}
			v.peers[s.ID] = b
			v.r.goFunc(func() { v.run(s.ID, b) })
		}
		select {
		case b.kick <- struct{}{}:
		default:
		}
	}
}

// settle answers the callers that a majority of the members confirms.
func (v *verifier) settle(m members) {
	for _, a := range v.rules.Confirmed(m.voters(v.r.cfg.ServerID)) {
		a.Caller <- confirmation{index: a.Index}
	}
}

// beatPause is after a message that failed.
const beatPause = 20 * time.Millisecond

func (v *verifier) run(id raft.ServerID, b *beat) {
	for {
		select {
		case <-v.lead.ctx.Done():
			return
		case <-b.kick:
		}
		for v.beat(id) {
		}
	}
}

// beat sends one message if a question waits for the follower, and returns false if not.
func (v *verifier) beat(id raft.ServerID) bool {
	v.mu.Lock()
	ticket, waits := v.rules.Send(string(id))
	v.mu.Unlock()
	if !waits {
		return false
	}
	m := v.r.members()
	s, ok := m.find(string(id))
	if !ok || s.Suffrage != raft.Voter {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.settle(m) // the others may be a majority without it
		return false
	}
	if v.send(s, ticket) {
		return true
	}
	select {
	case <-v.lead.ctx.Done():
		return false
	case <-time.After(beatPause):
		return true
	}
}

// send sends the message that raft's own heartbeats are, which changes nothing.
func (v *verifier) send(to raft.Server, ticket quorum.Ticket) (answered bool) {
	if !v.holds() {
		return false
	}
	req := raft.AppendEntriesRequest{RPCHeader: v.r.header(), Term: v.lead.term}
	var resp raft.AppendEntriesResponse
	if err := v.r.trans.AppendEntries(to.ID, to.Address, &req, &resp); err != nil {
		return false
	}
	m := v.r.members()
	v.mu.Lock()
	defer v.mu.Unlock()
	if resp.Term > v.lead.term || !resp.Success {
		for _, done := range v.rules.Lost() {
			done <- confirmation{err: ErrNotLeader}
		}
		return true
	}
	v.rules.Confirm(string(to.ID), ticket)
	v.settle(m)
	return true
}
