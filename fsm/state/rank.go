package state

import "sort"

// Rank returns how many actions of a queue are older than an action, which need not be one
// of them. It takes few steps for the youngest, and two searches for any.
func (s *State) Rank(q Queue, id ActionID) int {
	r := s.Ranks(q)
	return r.Of(id)
}

// Ranks finds ranks in one queue as it is now. It takes few steps from one to another that is
// near, so it is made for many that come in the order of their IDs.
type Ranks struct {
	state    *State
	first, n int // of the queue, among all that is queued
	last     int // the rank that was found last
}

// Ranks returns what finds ranks in a queue. The state must not change meanwhile.
func (s *State) Ranks(q Queue) Ranks {
	r := Ranks{state: s, n: s.QueueLen(q)}
	if r.n > 0 {
		r.first, r.last = s.firstOf(q), r.n-1
	}
	return r
}

// Of is Rank. It looks in steps that double, from the last rank on, until it is between two.
func (r *Ranks) Of(id ActionID) int {
	low, high := r.last, r.last
	for step := 1; low > 0 && !r.older(low-1, id); step *= 2 {
		low, high = max(0, low-step), low-1
	}
	for step := 1; high < r.n && r.older(high, id); step *= 2 {
		low, high = high+1, min(r.n, high+step)
	}
	r.last = low + sort.Search(high-low, func(i int) bool { return !r.older(low+i, id) })
	return r.last
}

// older reports whether the action at a place of the queue is older than another.
func (r *Ranks) older(place int, id ActionID) bool {
	k, _ := db(r.state).index.queue.GetAt(r.first + place)
	return k.id < id
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
