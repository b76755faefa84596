package state

import "sort"

// Rank returns how many actions of a queue are older than an action, which need not be one
// of them. It takes two searches, however long the queue is.
func (s *State) Rank(q Queue, id ActionID) int {
	n := s.QueueLen(q)
	if n == 0 {
		return 0
	}
	first := s.firstOf(q)
	return sort.Search(n, func(i int) bool {
		k, _ := db(s).index.queue.GetAt(first + i)
		return k.id >= id
	})
}

// QueuedEvery visits every step-th action of a queue, the oldest first. It takes a search
// for each.
func (s *State) QueuedEvery(q Queue, step int, fn func(ActionID) bool) {
	Assert(step > 0, "a step of %d through a queue", step)
	n := s.QueueLen(q)
	if n == 0 {
		return
	}
	if step == 1 {
		s.Queued(q, 0, fn)
		return
	}
	first := s.firstOf(q)
	for i := 0; i < n; i += step {
		if k, _ := db(s).index.queue.GetAt(first + i); !fn(k.id) {
			return
		}
	}
}

// firstOf returns how many actions there are in the queues before one.
func (s *State) firstOf(q Queue) int {
	key, t := q.Key(), db(s).index.queue
	return sort.Search(t.Len(), func(i int) bool {
		k, _ := t.GetAt(i)
		return k.queue >= key
	})
}

// Queues visits the queues in which actions wait, rooms beside them too, in the order of
// their keys.
func (s *State) Queues(fn func(q Queue, actions int) bool) {
	db(s).index.queueLen.Scan(func(k QueueKey, n int) bool { return fn(k.Queue(), n) })
}
