package runtime

import (
	"sync"

	"rota/agent/plan"
)

// exitQueue is a queue without a bound of its own: the supervisor bounds how
// many ends there can be.
type exitQueue struct {
	mu     sync.Mutex
	cond   *sync.Cond
	items  []plan.Exit
	closed bool
}

func newExitQueue() *exitQueue {
	q := new(exitQueue)
	q.cond = sync.NewCond(&q.mu)
	return q
}

func (q *exitQueue) push(e ...plan.Exit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, e...)
		q.cond.Signal()
	}
}

// close lets take return what is left, then nothing.
func (q *exitQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

// drop closes the queue and forgets what is left.
func (q *exitQueue) drop() {
	q.close()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = nil
}

// take waits for ends and returns at most a page of them, and none when the queue is
// closed and empty.
func (q *exitQueue) take() []plan.Exit {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.cond.Wait()
	}
	n := min(len(q.items), exitPage)
	page := q.items[:n:n]
	q.items = q.items[n:]
	return page
}
