package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
)

// proposal is the commands of one caller. They stay together in one entry.
type proposal struct {
	cmds  []*logv1.Command
	bytes int
	// weight is what the commands cost to apply: see fsm.Weight.
	weight int
	// term is that of the leadership in which the commands were accepted, and the only
	// one in which they may be committed; 0 before they have reached a leader.
	term  uint64
	state atomic.Int32
	done  chan outcome
}

const (
	proposalQueued int32 = iota
	proposalTaken
	proposalAbandoned
)

type outcome struct {
	results []*logv1.Result
	err     error
}

// Bytes that a proposal and a command cost beside what they encode to.
const (
	proposalOverhead = 128
	commandOverhead  = 64
)

func newProposal(term uint64, cmds []*logv1.Command) *proposal {
	p := &proposal{cmds: cmds, bytes: proposalOverhead, term: term, done: make(chan outcome, 1)}
	for _, c := range cmds {
		p.bytes += c.SizeVT() + commandOverhead
		p.weight += fsm.Weight(c)
	}
	return p
}

// await returns the outcome. A caller that gives up before its proposal was
// taken knows that it was not sent.
func (p *proposal) await(ctx context.Context, closed <-chan struct{}) ([]*logv1.Result, error) {
	select {
	case o := <-p.done:
		return o.results, o.err
	case <-ctx.Done():
		if p.state.CompareAndSwap(proposalQueued, proposalAbandoned) {
			return nil, fmt.Errorf("%w: %w", ErrNoLeader, ctx.Err())
		}
		return nil, ErrUnknownOutcome
	case <-closed:
		if p.state.CompareAndSwap(proposalQueued, proposalAbandoned) {
			return nil, ErrShutdown
		}
		return nil, ErrUnknownOutcome
	}
}

// queue holds what waits to be proposed, bounded in bytes.
type queue struct {
	limit int
	ready chan struct{}

	mu      sync.Mutex
	waiting []*proposal
	bytes   int
	out     int // batches taken and not settled
}

func newQueue(limit int) *queue {
	return &queue{limit: limit, ready: make(chan struct{}, 1)}
}

// overloadedRetry is the hint in ErrOverloaded: about as long as a full queue
// takes to drain on a small machine.
const overloadedRetry = 250 * time.Millisecond

func (q *queue) push(p *proposal) error {
	q.mu.Lock()
	if q.bytes > 0 && q.bytes+p.bytes > q.limit {
		q.mu.Unlock()
		return ErrOverloaded{RetryAfter: overloadedRetry}
	}
	q.waiting = append(q.waiting, p)
	q.bytes += p.bytes
	q.mu.Unlock()
	q.signal()
	return nil
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take returns the oldest proposals that fit into one entry and are of one term, at
// least one. It is empty only if nothing waits.
func (q *queue) take(bytesMax, weightMax int) []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch []*proposal
	var bytes, weight, n int
	for _, p := range q.waiting {
		if len(batch) > 0 && (p.term != batch[0].term || bytes+p.bytes > bytesMax || weight+p.weight > weightMax) {
			break
		}
		n++
		q.bytes -= p.bytes
		if !p.state.CompareAndSwap(proposalQueued, proposalTaken) {
			continue
		}
		batch = append(batch, p)
		bytes += p.bytes
		weight += p.weight
	}
	if len(batch) > 0 {
		q.out++
	}
	clear(q.waiting[:n])
	q.waiting = q.waiting[n:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	} else {
		q.signal()
	}
	return batch
}

// next waits for work and takes it; nil if the replica closes.
func (q *queue) next(closed <-chan struct{}, bytesMax, weightMax int) []*proposal {
	for {
		if batch := q.take(bytesMax, weightMax); len(batch) > 0 {
			return batch
		}
		select {
		case <-q.ready:
		case <-closed:
			return nil
		}
	}
}

func commands(batch []*proposal) []*logv1.Command {
	if len(batch) == 1 {
		return batch[0].cmds
	}
	n := 0
	for _, p := range batch {
		n += len(p.cmds)
	}
	cmds := make([]*logv1.Command, 0, n)
	for _, p := range batch {
		cmds = append(cmds, p.cmds...)
	}
	return cmds
}

// deliver gives everybody their own results, or everybody the error.
func (q *queue) deliver(batch []*proposal, results []*logv1.Result, err error) {
	for _, p := range batch {
		if err != nil {
			p.done <- outcome{err: err}
			continue
		}
		n := len(p.cmds)
		p.done <- outcome{results: results[:n:n]}
		results = results[n:]
	}
	q.mu.Lock()
	q.out--
	q.mu.Unlock()
}

// idle says whether nothing waits and nothing is without an answer.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes == 0 && q.out == 0
}
