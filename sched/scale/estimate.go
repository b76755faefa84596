package scale

import "math/bits"

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
	if behind := len(e.least) - n; behind > 0 {
		// Lines 10 to 13, for the largest degree that is explored.
		e.slots.fill(e.ends, behind)
		t = e.slots.insert(t, e.first[n:n+1])
		t = e.slots.insert(t, e.least[n+1:])
		next = e.slots[1].end
	}
	return e.tail(t, next, len(e.ends))
}

// slots is Algorithm 2's completion heap. An action is inserted by taking the
// earliest end and putting its own in the place: the number of ends stays. So it
// is a tournament: leaves are ends, and every other node is the earlier of its
// two. To replace an end is to play one path again, which takes no branch that
// depends on a duration.
type slots [2 * slotsMax]slot

// slotsMax is a power of two that all whose turn may come fit into.
const slotsMax = 1024

// slot is a node of the tournament: an end, and the leaf that it comes from.
type slot struct {
	end  int64
	leaf uint64
}

// fill has those of the sorted ends in the tournament that so many actions may
// come to, and the one after them.
func (s *slots) fill(ends []int64, actions int) {
	ends = ends[:min(len(ends), actions+1)]
	for i, end := range ends {
		leaf := len(ends) + i
		s[leaf] = slot{end, uint64(leaf)}
	}
	for i := len(ends) - 1; i > 0; i-- {
		s[i] = s[2*i]
		if right := s[2*i+1]; right.end < s[i].end {
			s[i] = right
		}
	}
}

// insert adds the ends of actions that start one after the other, each when the
// next of those before it ends (Algorithm 2, lines 14 to 16).
func (s *slots) insert(t total, durations []int64) total {
	hi, lo, carry := t.hi, t.lo, uint64(0)
	win := s[1]
	for _, ns := range durations {
		win.end += ns
		lo, carry = bits.Add64(lo, uint64(win.end), 0)
		hi += carry
		i := win.leaf % uint64(len(s))
		s[i].end = win.end
		for i > 1 {
			// The earlier of the two, without a branch: m is all bits, or none.
			other := &s[(i^1)%uint64(len(s))]
			d := other.end - win.end
			m := d >> 63
			win.end += d & m
			win.leaf ^= (win.leaf ^ other.leaf) & uint64(m)
			i = i / 2 % uint64(len(s)/2)
			s[i] = win
		}
	}
	s[1] = win
	return total{hi, lo}
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
