package scale

import (
	"math"
	"math/bits"
)

// total is a sum of ends, in 128 bits.
type total struct{ hi, lo uint64 }

func (t total) less(o total) bool {
	return t.hi < o.hi || t.hi == o.hi && t.lo < o.lo
}

// objective returns Algorithm 2's objective for the candidates that are left:
// the sum of their durations, and of the estimated ends of those behind them.
func (e *Elastic) objective() total {
	n := e.arranger.Len()
	t := total{lo: uint64(e.arranger.Cost())}
	if n == len(e.least) {
		return t
	}
	first := e.first[n]
	rest := e.least[n+1:]
	// Algorithm 2, lines 10 to 13, for the largest amount that is explored. What
	// ends first makes room for the first of those behind.
	ts := e.ends[0]
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, uint64(ts+first), 0)
	t.hi += carry
	e.added = append(e.added[:0], ts+first)
	return e.insert(t, e.ends[1:], rest)
}

// insert adds the ends of actions that start one after the other, each when the
// next of those before it ends (Algorithm 2, lines 14 to 16).
//
// The completion heap is in two parts: the ends known before, which are sorted,
// and a heap of those added. An end that comes after as many known ones as there
// are actions left is not needed in it, as its turn never comes.
func (e *Elastic) insert(t total, known, durations []int64) total {
	h := e.added
	latest := int64(math.MaxInt64)
	if len(known) >= len(durations) && len(durations) > 0 {
		latest = known[len(durations)-1]
	}
	var hi, carry uint64
	lo := t.lo
	for _, ns := range durations {
		var end int64
		if len(known) > 0 && (len(h) == 0 || known[0] <= h[0]) {
			end = known[0] + ns
			known = known[1:]
			if end < latest {
				h = push(h, end)
			}
		} else {
			end = h[0] + ns
			sink(h, end)
		}
		lo, carry = bits.Add64(lo, uint64(end), 0)
		hi += carry
	}
	e.added = h
	return total{t.hi + hi, lo}
}

// push adds a value to a heap.
func push(h []int64, v int64) []int64 {
	h = append(h, v)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= v {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = v
	return h
}

// sink puts a value in the place of the least of a heap.
func sink(h []int64, v int64) {
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if r := c + 1; r < len(h) && h[r] < h[c] {
			c = r
		}
		if h[c] >= v {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = v
}
