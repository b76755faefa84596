package replica

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// verifier asks the followers whether this server still leads in its term.
//
// raft.VerifyLeader counts any answer that arrives after the question, also an
// answer to a message that was sent before it; a delayed one can be older than
// the election of a successor. Here every question has a ticket, and a follower's
// answer counts for the tickets that were drawn before its message was sent. One
// message per follower is in flight, and it serves everybody who waits.
type verifier struct {
	r    *Replica
	lead *leadership

	mu      sync.Mutex
	ticket  uint64
	waiting []verification // by ticket
	acked   map[raft.ServerID]uint64
	peers   map[raft.ServerID]*beat
}

type verification struct {
	ticket uint64
	done   chan error
}

// beat is the goroutine that talks to one follower.
type beat struct {
	kick chan struct{}
}

func newVerifier(r *Replica, lead *leadership) *verifier {
	return &verifier{
		r: r, lead: lead,
		acked: make(map[raft.ServerID]uint64), peers: make(map[raft.ServerID]*beat),
	}
}

// holds says whether raft still thinks that it leads in this term.
func (v *verifier) holds() bool {
	return v.lead.ctx.Err() == nil && v.r.raft.State() == raft.Leader && v.r.raft.CurrentTerm() == v.lead.term
}

// verify returns nil if a majority confirmed, after the call, that no later
// leader had been elected.
func (v *verifier) verify(ctx context.Context) error {
	if !v.holds() {
		return ErrNotLeader
	}
	voters := v.r.otherVoters()
	if len(voters) == 0 {
		return nil
	}
	done := v.ask(voters)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-v.lead.ctx.Done():
		return ErrNotLeader
	}
}

func (v *verifier) ask(voters []raft.Server) <-chan error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ticket++
	w := verification{ticket: v.ticket, done: make(chan error, 1)}
	v.waiting = append(v.waiting, w)
	for _, s := range voters {
		b, ok := v.peers[s.ID]
		if !ok {
			b = &beat{kick: make(chan struct{}, 1)}
			v.peers[s.ID] = b
			v.r.goFunc(func() { v.run(s.ID, b) })
		}
		b.again()
	}
	return w.done
}

func (b *beat) again() {
	select {
	case b.kick <- struct{}{}:
	default:
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
		if v.send(id) {
			continue
		}
		select {
		case <-v.lead.ctx.Done():
			return
		case <-time.After(beatPause):
		}
		if v.pending(id) {
			b.again()
		}
	}
}

// send sends the message that raft's own heartbeats are, which changes nothing.
func (v *verifier) send(id raft.ServerID) bool {
	address, ok := v.r.voterAddress(id)
	if !ok || !v.holds() {
		return false
	}
	v.mu.Lock()
	ticket := v.ticket
	v.mu.Unlock()
	header := v.r.header()
	req := raft.AppendEntriesRequest{RPCHeader: header, Term: v.lead.term}
	var resp raft.AppendEntriesResponse
	if err := v.r.trans.AppendEntries(id, address, &req, &resp); err != nil {
		return false
	}
	if resp.Term > v.lead.term || !resp.Success {
		v.finish(v.ticketNow(), ErrNotLeader)
		return true
	}
	v.ack(id, ticket)
	return true
}

func (v *verifier) ticketNow() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ticket
}

func (v *verifier) pending(id raft.ServerID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.waiting) > 0 && v.acked[id] < v.waiting[len(v.waiting)-1].ticket
}

func (v *verifier) ack(id raft.ServerID, ticket uint64) {
	voters := v.r.otherVoters()
	need := v.r.quorumOfOthers(len(voters))
	v.mu.Lock()
	v.acked[id] = max(v.acked[id], ticket)
	acked := make([]uint64, 0, len(voters))
	for _, s := range voters {
		acked = append(acked, v.acked[s.ID])
	}
	v.mu.Unlock()
	if len(acked) < need {
		return
	}
	slices.Sort(acked)
	v.finish(acked[len(acked)-need], nil)
}

// finish answers everybody up to a ticket.
func (v *verifier) finish(ticket uint64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for ; n < len(v.waiting) && v.waiting[n].ticket <= ticket; n++ {
		v.waiting[n].done <- err
	}
	clear(v.waiting[:n])
	v.waiting = v.waiting[n:]
}
