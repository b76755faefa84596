package state

import "math/bits"

const (
	// LifetimeUnit is what one attempt counts for at first, so that little is lost when
	// counts are halved.
	LifetimeUnit = 16
	// lifetimesMax is how many attempts may count in full. Then all counts are halved, so
	// that what was seen long ago weighs less and less.
	lifetimesMax = 512
)

// Lifetimes is a histogram of how much work there was in the attempts of a class: how long
// each would have taken with one unit. Buckets are four to an octave, so that the widest is a
// quarter of its least value wide.
type Lifetimes []Lifetime

// Lifetime is one bucket: attempts with this much work. Counts are in sixteenths of attempts,
// and fade.
type Lifetime struct {
	Bucket uint32
	// Ended is for those that came to their end, with whatever exit code.
	Ended uint64
	// Cut is for those that were ended by others: all that is known is that they had more
	// work than this (censored samples).
	Cut uint64
}

// LifetimeBucket returns the bucket of an amount of work in nanoseconds.
func LifetimeBucket(ns int64) uint32 {
	if ns < 4 {
		return uint32(max(ns, 0))
	}
	shift := bits.Len64(uint64(ns)) - 3
	return uint32(4*(shift+1)) + uint32(ns>>shift)&3
}

// LifetimeLeast returns the least amount of work of a bucket, in nanoseconds.
func LifetimeLeast(bucket uint32) int64 {
	if bucket < 4 {
		return int64(bucket)
	}
	return int64(4+bucket%4) << (bucket/4 - 1)
}

// with returns the histogram with one more attempt.
func (h Lifetimes) with(ns int64, ended bool) Lifetimes {
	b, i := LifetimeBucket(ns), 0
	for i < len(h) && h[i].Bucket < b {
		i++
	}
	out := make(Lifetimes, 0, len(h)+1)
	out = append(out, h[:i]...)
	if i == len(h) || h[i].Bucket > b {
		out = append(out, Lifetime{Bucket: b})
	}
	out = append(out, h[i:]...)
	if ended {
		out[i].Ended += LifetimeUnit
	} else {
		out[i].Cut += LifetimeUnit
	}
	return out.faded()
}

// faded halves all counts if they have become too many, and drops what is then nothing.
func (h Lifetimes) faded() Lifetimes {
	sum := uint64(0)
	for _, l := range h {
		sum += l.Ended + l.Cut
	}
	if sum <= lifetimesMax*LifetimeUnit {
		return h
	}
	kept := h[:0]
	for _, l := range h {
		if l.Ended, l.Cut = l.Ended/2, l.Cut/2; l.Ended+l.Cut > 0 {
			kept = append(kept, l)
		}
	}
	return kept
}

// Quantiles returns how much work there is in so many parts per million of all attempts, at
// most; 0 where the end of so many was not seen. Both ascend.
//
// Survival is estimated as Kaplan and Meier do (Journal of the American Statistical
// Association 53, 1958): an attempt that was cut off is at risk of ending until then. So
// those that were cut off, which tend to be the long ones, do not make the others look
// typical. Within a bucket, ends are spread evenly.
func (h Lifetimes) Quantiles(ppm ...uint64) []int64 {
	const whole, million = 1 << 40, 1_000_000
	risk := uint64(0)
	for _, l := range h {
		risk += l.Ended + l.Cut
	}
	out, alive := make([]int64, len(ppm)), uint64(whole)
	next := 0
	for _, l := range h {
		left := alive - MulDiv(alive, l.Ended, risk)
		for ; next < len(ppm) && alive > left; next++ {
			wanted := whole - MulDiv(whole, ppm[next], million)
			if wanted < left {
				break
			}
			from, to := LifetimeLeast(l.Bucket), LifetimeLeast(l.Bucket+1)
			out[next] = from + int64(MulDiv(uint64(to-from), alive-min(alive, wanted), alive-left))
		}
		alive, risk = left, risk-l.Ended-l.Cut
	}
	return out
}
