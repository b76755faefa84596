package model

import (
	"cmp"
	"container/heap"
)

// state is where a request is.
type state uint8

const (
	waiting state = iota
	prefilling
	decoding
)

// request is one that has not ended.
type request struct {
	Request
	seq   uint64
	state state
	// index is its place in the heap that it is in.
	index int
	// done is how many tokens it had generated when it was admitted last.
	done int64
	// context is how many tokens it had to have in the KV cache then: its prompt and done. left
	// of them are not computed yet.
	context, left int64
	// begin is the number of the step before the one that gave its first token since, and end
	// that of the step which gives its last.
	begin, end int64
	canceled   bool
	// sibling is the next running request with the same key.
	sibling *request
}

// outranks reports whether r goes before other: by priority, then by arrival.
func (r *request) outranks(other *request) bool {
	if r.Priority != other.Priority {
		return r.Priority > other.Priority
	}
	return r.seq < other.seq
}

// queue is a heap of requests in some order.
type queue struct {
	of     []*request
	before func(a, b *request) bool
}

func (q *queue) Len() int           { return len(q.of) }
func (q *queue) Less(i, j int) bool { return q.before(q.of[i], q.of[j]) }

func (q *queue) Swap(i, j int) {
	q.of[i], q.of[j] = q.of[j], q.of[i]
	q.of[i].index, q.of[j].index = i, j
}

func (q *queue) Push(x any) {
	r := x.(*request)
	r.index = len(q.of)
	q.of = append(q.of, r)
}

func (q *queue) Pop() any {
	last := len(q.of) - 1
	r := q.of[last]
	q.of[last] = nil
	q.of = q.of[:last]
	return r
}

func (q *queue) add(r *request)    { heap.Push(q, r) }
func (q *queue) remove(r *request) { heap.Remove(q, r.index) }
func (q *queue) first() *request   { return q.of[0] }

func byRank(a, b *request) bool { return a.outranks(b) }

// byArrival compares two requests by their arrival.
func byArrival(a, b *request) int { return cmp.Compare(a.seq, b.seq) }

// byEnd orders what decodes by its last step; equals by arrival, so that events have one order.
func byEnd(a, b *request) bool {
	if a.end != b.end {
		return a.end < b.end
	}
	return a.seq < b.seq
}
