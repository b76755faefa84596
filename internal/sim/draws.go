package sim

import (
	"math/bits"
	"math/rand/v2"
)

// Draws is the luck of a world. Whoever needs some asks with a name of its own
// and the time, so nobody's draws depend on how often others drew.
type Draws uint64

// Draw is the luck of one name at one time.
type Draw struct{ pcg rand.PCG }

// Of returns the draws of a name at a time.
func (d Draws) Of(name uint64, at int64) Draw {
	var out Draw
	seed := mix(uint64(d) ^ mix(name))
	out.pcg.Seed(seed, mix(seed^uint64(at)))
	return out
}

// mix is the finalizer of splitmix64: every bit of the result depends on every
// bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Uint64 returns any number.
func (d *Draw) Uint64() uint64 { return d.pcg.Uint64() }

// N returns a number in [0, n), 0 if there is none.
func (d *Draw) N(n int64) int64 {
	if n <= 0 {
		return 0
	}
	hi, _ := bits.Mul64(d.pcg.Uint64(), uint64(n))
	return int64(hi)
}

// Between returns a number in [low, high].
func (d *Draw) Between(low, high int64) int64 { return low + d.N(high-low+1) }

// Chance is true in ppm of a million cases.
func (d *Draw) Chance(ppm int64) bool { return d.N(1_000_000) < ppm }

// Skewed returns a number in [low, high], most often near low: each doubling of
// the distance to low, from a 128th of it on, is about as likely as the one before.
func (d *Draw) Skewed(low, high int64) int64 {
	span := high - low
	if span <= 0 {
		return low
	}
	most := int64(bits.Len64(uint64(span)))
	width := d.Between(max(1, most-7), most)
	return low + min(span, d.N(1<<width))
}
