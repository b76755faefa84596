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

// plus adds a*b/c, rounded down.
func (t total) plus(a, b, c uint64) total {
	hi, lo := bits.Mul64(a, b)
	hi, rest := hi/c, hi%c
	lo, _ = bits.Div64(rest, lo, c)
	lo, carry := bits.Add64(t.lo, lo, 0)
	hi, _ = bits.Add64(t.hi, hi, carry)
	return total{hi, lo}
}

// objective returns Algorithm 2's objective for the candidates that are left:
// the sum of their durations, and of the estimated ends of those behind them.
func (e *Elastic) objective() total {
	n := e.arranger.Len()
	t := total{lo: uint64(e.arranger.Cost())}
	next := e.ends[0]
	if n < len(e.least) {
		// Algorithm 2, lines 10 to 13, for the largest amount that is explored.
		// What ends first makes room for the first of those behind.
		end := next + e.first[n]
		e.added = append(e.added[:0], end)
		t, next = e.insert(t.plus(uint64(end), 1, 1), e.ends[1:], e.least[n+1:])
	}
	return e.tail(t, next, len(e.ends))
}

// insert adds the ends of actions that start one after the other, each when the
// next of those before it ends (Algorithm 2, lines 14 to 16). It also returns when
// one more would start.
//
// The completion heap is in two parts: the ends known before, which are sorted,
// and a heap of those added. An end that comes after as many known ones as there
// are actions left is not needed in it, as its turn never comes.
func (e *Elastic) insert(t total, known, durations []int64) (total, int64) {
	h := e.added
	latest := int64(math.MaxInt64)
	if len(known) > len(durations) {
		latest = known[len(durations)]
	}
	hi, lo, carry := t.hi, t.lo, uint64(0)
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
	if len(known) > 0 && (len(h) == 0 || known[0] <= h[0]) {
		return total{hi, lo}, known[0]
	}
	return total{hi, lo}, h[0]
}

// tail adds what those wait that are not looked at one by one. If next is when
// the first of them starts, and so many slots each take one after the other of
// mean duration, the i-th starts i*mean/slots later. How long they themselves
// take is the same for every eviction, and left out.
func (e *Elastic) tail(t total, next int64, slots int) total {
	if e.behind == 0 {
		return t
	}
	m := uint64(e.behind)
	t = t.plus(m, uint64(next), 1)
	return t.plus(m*(m-1)/2, uint64(e.unknown), uint64(slots))
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
