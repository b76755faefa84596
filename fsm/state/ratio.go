package state

import (
	"math"
	"math/bits"
)

// MulDiv returns a*b/c rounded down, with a 128-bit product in between. A
// quotient above 64 bits saturates; c must not be 0.
func MulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return 1<<64 - 1
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// Saturated returns a + b, or the highest number if the sum is higher.
func Saturated[T int64 | uint64](a, b T) T {
	if sum := a + b; sum >= a {
		return sum
	}
	if most := ^T(0); most > 0 { // unsigned
		return most
	}
	return math.MaxInt64
}
