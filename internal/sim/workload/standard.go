package workload

import (
	"math/bits"
	"sort"

	"rota/fsm/state"
)

// Normal returns the quantile of u of 2^64 cases of the standard normal distribution, in
// millionths. It ends at four and a quarter standard deviations.
func Normal(u uint64) int64 {
	p, sign := u>>32, int64(1)
	if p < certain/2 {
		p, sign = certain-1-p, -1
	}
	i := sort.Search(len(normal)-2, func(i int) bool { return normal[i+1].p > p })
	a, b := normal[i], normal[i+1]
	z := a.z + state.MulDiv(min(p, b.p)-a.p, b.z-a.z, b.p-a.p)
	return sign * int64(z)
}

// expMillionthsMax is e^13, far more than any factor that a workload has.
const expMillionthsMax = 13_000_000

// TimesExp returns v times e to the power of x millionths, rounded down. x is cut at 13 million
// on both sides, v is not negative. It is computed in integers, so every machine draws the same.
func TimesExp(v, x int64) int64 {
	if v <= 0 {
		return 0
	}
	if x < 0 {
		return int64(state.MulDiv(uint64(v), one, exp(uint64(min(-x, expMillionthsMax)))))
	}
	e := exp(uint64(min(x, expMillionthsMax)))
	if hi, _ := bits.Mul64(uint64(v), e); hi>>29 != 0 {
		return 1<<62 - 1
	}
	return int64(state.MulDiv(uint64(v), e, one))
}

// NormalRank returns which of n equally likely places, from 0, a standard normal number in
// millionths falls on.
func NormalRank(z, n int64) int64 {
	abs := uint64(max(z, -z))
	i := sort.Search(len(normal)-2, func(i int) bool { return normal[i+1].z > abs })
	a, b := normal[i], normal[i+1]
	tail := a.p + state.MulDiv(min(abs, b.z)-a.z, b.p-a.p, b.z-a.z)
	if z < 0 {
		tail = certain - tail
	}
	return min(int64(state.MulDiv(tail, uint64(n), certain)), n-1)
}
