package runtime

import (
	"sync"

	"rota/agent/plan"
)

// forgetPage is how many keys one request, and one journal record, carries.
const forgetPage = 512

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

// close lets pop return what is left, then false.
func (q *exitQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

func (q *exitQueue) pop() (plan.Exit, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.cond.Wait()
	}
	if len(q.items) == 0 {
		return plan.Exit{}, false
	}
	e := q.items[0]
	q.items = q.items[1:]
	return e, true
}
