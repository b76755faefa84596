package scale

import (
	"errors"
	"fmt"
	"math/bits"
)

// AttemptsMax bounds how many attempts with one degree are counted.
const AttemptsMax = 1 << 40

// Seen is what was learned of one degree: how long attempts with it took on
// average, and how many there were.
type Seen struct {
	Units    int32
	NS       int64
	Attempts int64
}

// Learned is the demand of an action of which attempts were seen, in ascending
// order of units.
//
// What was seen is projected by Monotone. Between two degrees that were seen the
// duration is a straight line. More than the largest is not known to help. Less
// than the least takes longer in proportion, which by equation 1 is the most that
// it can take as long as E does not grow with units.
func Learned(a DoPSet, seen []Seen) (Demand, error) {
	if err := checkSeen(seen); err != nil {
		return Demand{}, err
	}
	ns := Monotone(seen)
	table := make([]int64, a.Len())
	for i := range table {
		m := a.At(i)
		if least := seen[0].Units; m < least {
			table[i] = bounded(uint64(ns[0]), uint64(least), uint64(m))
		} else {
			table[i] = onLine(seen, ns, m)
		}
	}
	return NewDemand(a, table)
}

func checkSeen(seen []Seen) error {
	if len(seen) == 0 {
		return errors.New("nothing was seen")
	}
	last := int32(0)
	for _, s := range seen {
		switch {
		case s.Units <= last || s.Units > UnitsMax:
			return fmt.Errorf("%d units were seen after %d", s.Units, last)
		case s.NS < 1 || s.NS > DurationMax:
			return fmt.Errorf("a duration of %d ns was seen", s.NS)
		case s.Attempts < 1 || s.Attempts > AttemptsMax:
			return fmt.Errorf("%d attempts were seen", s.Attempts)
		}
		last = s.Units
	}
	return nil
}

// onLine returns the duration with m units, not fewer than the least seen.
func onLine(seen []Seen, ns []int64, m int32) int64 {
	for i := range seen {
		if seen[i].Units < m {
			continue
		}
		if seen[i].Units == m {
			return ns[i]
		}
		fall, run := ns[i-1]-ns[i], seen[i].Units-seen[i-1].Units
		return ns[i-1] - int64(ratio(uint64(fall), uint64(m-seen[i-1].Units), uint64(run)))
	}
	return ns[len(ns)-1]
}

// bounded returns a*b/c rounded up, but at most DurationMax.
func bounded(a, b, c uint64) int64 {
	hi, lo := bits.Mul64(a, b)
	lo, carry := bits.Add64(lo, c-1, 0)
	if hi += carry; hi >= c {
		return DurationMax
	}
	q, _ := bits.Div64(hi, lo, c)
	return int64(min(q, DurationMax))
}

// Monotone returns the durations that never grow with units and are closest to
// those seen, by squares weighted with the attempts (isotonic regression, by
// pooling adjacent violators). Means are rounded to whole nanoseconds, down.
//
// The cumulative minimum would do with less, but it believes the luckiest
// degree: a single fast attempt would lower all larger ones for good. A pool is
// as long as its attempts were on average, so one of few weighs little.
func Monotone(seen []Seen) []int64 {
	type pool struct {
		hi, lo   uint64 // sum of durations
		attempts uint64
		last     int // of its entries
	}
	mean := func(p pool) int64 {
		q, _ := bits.Div64(p.hi, p.lo, p.attempts)
		return int64(q)
	}
	pools := make([]pool, 0, len(seen))
	for i, s := range seen {
		hi, lo := bits.Mul64(uint64(s.NS), uint64(s.Attempts))
		p := pool{hi, lo, uint64(s.Attempts), i}
		for len(pools) > 0 && mean(pools[len(pools)-1]) < mean(p) {
			q := pools[len(pools)-1]
			pools = pools[:len(pools)-1]
			var carry uint64
			p.lo, carry = bits.Add64(p.lo, q.lo, 0)
			p.hi += q.hi + carry
			p.attempts += q.attempts
		}
		pools = append(pools, p)
	}
	ns := make([]int64, len(seen))
	i := 0
	for _, p := range pools {
		for ; i <= p.last; i++ {
			ns[i] = mean(p)
		}
	}
	return ns
}
