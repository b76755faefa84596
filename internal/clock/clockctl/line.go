package clockctl

import "math"

// Speeds, in millionths that a clock gains: -900,000 is a tenth of the true
// speed, 9,000,000 ten times as much.
const (
	RateMin = -900_000
	RateMax = 9_000_000
)

const million = 1_000_000

// line is shown time as a function of true time, both CLOCK_BOOTTIME in
// nanoseconds, from the point (trueNS, shownNS) on.
type line struct {
	trueNS, shownNS, ratePPM int64
}

// shown is the shown time at a true one.
func (l line) shown(trueNS int64) int64 {
	d := trueNS - l.trueNS
	return l.shownNS + d + scale(d, l.ratePPM, million)
}

// true is the first true time at which shownNS or more is shown; the point of
// the line if that is earlier.
func (l line) true(shownNS int64) int64 {
	d := shownNS - l.shownNS
	if d <= 0 {
		return l.trueNS
	}
	slope := million + l.ratePPM
	if d/slope > math.MaxInt64/million/2 {
		return math.MaxInt64 // beyond any clock
	}
	at := l.trueNS + scale(d, million, slope)
	for l.shown(at) < shownNS {
		at++
	}
	return at
}

// scale is d * num / den, rounded down, without the product that might not fit.
func scale(d, num, den int64) int64 {
	whole := d / den * num
	part := d % den * num
	q := part / den
	if part%den < 0 {
		q--
	}
	return whole + q
}
