package workload

import (
	"math/bits"

	"rota/fsm/state"
)

// normal holds quantiles of the standard normal distribution from its median
// up: p of 2^32 cases are at most z millionths. Below the median it is mirrored;
// beyond the last entry the tables of this package end.
var normal = normalTable([][2]uint64{
	{50_000_000, 0}, {55_000_000, 125_661}, {60_000_000, 253_347}, {65_000_000, 385_320},
	{70_000_000, 524_401}, {75_000_000, 674_490}, {80_000_000, 841_621}, {85_000_000, 1_036_433},
	{87_500_000, 1_150_349}, {90_000_000, 1_281_552}, {92_500_000, 1_439_531}, {95_000_000, 1_644_854},
	{96_250_000, 1_780_464}, {97_500_000, 1_959_964}, {98_500_000, 2_170_090}, {99_000_000, 2_326_348},
	{99_500_000, 2_575_829}, {99_750_000, 2_807_034}, {99_900_000, 3_090_232}, {99_950_000, 3_290_527},
	{99_990_000, 3_719_016}, {99_997_000, 4_012_811}, {99_999_000, 4_264_891},
})

type normalPoint struct{ p, z uint64 }

// normalTable converts from p of 10^8 cases.
func normalTable(table [][2]uint64) []normalPoint {
	out := make([]normalPoint, len(table))
	for i, q := range table {
		out[i] = normalPoint{state.MulDiv(q[0], certain, 100*million), q[1]}
	}
	return out
}

// one is 1 as exp returns it.
const one = 1 << 30

// exp returns e to the power of x millionths, times one. x is at most 13 million
// here, see sigmaPPMMax. The exponent becomes one of 2, whose fraction is
// a product of the roots of 2 that its bits stand for.
func exp(x uint64) uint64 {
	const log2e = 6_196_328_019 // log2(e) * 2^32
	power := state.MulDiv(x, log2e, million)
	result := uint64(1) << 62
	for i, bit := 0, uint64(1)<<31; bit != 0; i, bit = i+1, bit>>1 {
		if power&bit != 0 {
			hi, lo := bits.Mul64(result, roots[i])
			result = hi<<2 | lo>>62
		}
	}
	return result >> 32 << (power >> 32)
}

// roots are 2^(1/2), 2^(1/4), 2^(1/8) and so on, times 2^62: each the square
// root of the one before.
var roots = func() (out [32]uint64) {
	hi, lo := uint64(2)<<60, uint64(0) // 2 in units of 2^-124
	for i := range out {
		out[i] = squareRoot(hi, lo)
		hi, lo = out[i]>>2, out[i]<<62
	}
	return out
}()

// squareRoot returns the root of a 128-bit number, rounded down.
func squareRoot(hi, lo uint64) uint64 {
	var root uint64
	for bit := uint64(1) << 63; bit != 0; bit >>= 1 {
		try := root | bit
		h, l := bits.Mul64(try, try)
		if h < hi || h == hi && l <= lo {
			root = try
		}
	}
	return root
}
