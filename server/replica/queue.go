package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/server/entry"
)

// caller waits for the outcome of its proposal. It has room for one.
type caller chan outcome

type outcome struct {
	results []*logv1.Result
	err     error
}

type (
	proposal = entry.Proposal[caller]
	batch    = entry.Batch[caller]
)

func newProposal(term uint64, cmds []*logv1.Command) *proposal {
	weight := 0
	for _, c := range cmds {
		weight += fsm.Weight(c)
	}
	return entry.NewProposal(make(caller, 1), term, cmds, weight)
}

// queue is the queue of package entry, for callers on many goroutines.
type queue struct {
	ready chan struct{}

	mu    sync.Mutex
	rules *entry.Queue[caller]
}

func newQueue(l entry.Limits) *queue {
	return &queue{ready: make(chan struct{}, 1), rules: entry.NewQueue[caller](l)}
}

// overloadedRetry is the hint in ErrOverloaded: about as long as a full queue
// takes to drain on a small machine.
const overloadedRetry = 250 * time.Millisecond

func (q *queue) push(p *proposal) error {
	q.mu.Lock()
	fits := q.rules.Push(p)
	q.mu.Unlock()
	if !fits {
		return ErrOverloaded{RetryAfter: overloadedRetry}
	}
	q.signal()
	return nil
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// await returns the outcome of a proposal. A caller that gives up before its proposal was
// taken knows that it was not sent.
func (q *queue) await(ctx context.Context, p *proposal, closed <-chan struct{}) ([]*logv1.Result, error) {
	var notSent error
	select {
	case o := <-p.Caller:
		return o.results, o.err
	case <-ctx.Done():
		notSent = fmt.Errorf("%w: %w", ErrNoLeader, ctx.Err())
	case <-closed:
		notSent = ErrShutdown
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rules.Withdraw(p) {
		return nil, notSent
	}
	return nil, ErrUnknownOutcome
}

// next waits for work and takes it; nil if the replica closes.
func (q *queue) next(closed <-chan struct{}) batch {
	for {
		if b := q.take(); len(b) > 0 {
			return b
		}
		select {
		case <-q.ready:
		case <-closed:
			return nil
		}
	}
}

func (q *queue) take() batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.rules.Take()
	if q.rules.Bytes() > 0 {
		q.signal()
	}
	return b
}

// deliver gives each caller its own results, or the error.
func (q *queue) deliver(b batch, results []*logv1.Result, err error) {
	if err != nil {
		for _, p := range b {
			p.Caller <- outcome{err: err}
		}
	} else {
		for to, own := range b.Answers(results) {
			to <- outcome{results: own}
		}
	}
	q.mu.Lock()
	q.rules.Settle()
	q.mu.Unlock()
}

// idle says whether nothing waits and nothing is without an answer.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rules.Idle()
}

// queued is how many bytes wait.
func (q *queue) queued() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.rules.Bytes()
}
