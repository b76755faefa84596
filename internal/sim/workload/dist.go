package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"sort"

	"rota/fsm/state"
)

const million = 1_000_000

// Dist is a distribution of whole numbers: a table of quantiles with straight
// lines between them. Drawing from it is inverse transform in integers, so every
// machine draws the same.
type Dist struct {
	points []point
}

// point says that p of 2^32 cases are at most v.
type point struct {
	p uint64
	v int64
}

const certain = 1 << 32

// Fixed returns the distribution that is always v.
func Fixed(v int64) Dist { return Dist{[]point{{0, v}, {certain, v}}} }

// At returns the quantile of u of 2^64 cases, rounded to the nearest number.
func (d Dist) At(u uint64) int64 {
	if len(d.points) == 0 {
		return 0
	}
	p := u >> 32
	i := sort.Search(len(d.points)-2, func(i int) bool { return d.points[i+1].p > p })
	a, b := d.points[i], d.points[i+1]
	hi, lo := bits.Mul64(uint64(b.v-a.v), p-a.p)
	lo, carry := bits.Add64(lo, (b.p-a.p)/2, 0)
	q, _ := bits.Div64(hi+carry, lo, b.p-a.p)
	return a.v + int64(q)
}

// Mean returns the mean, rounded down.
func (d Dist) Mean() int64 {
	var hi, lo, carry uint64
	for i := 1; i < len(d.points); i++ {
		a, b := d.points[i-1], d.points[i]
		h, l := bits.Mul64(uint64(a.v+b.v), b.p-a.p)
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	mean, _ := bits.Div64(hi, lo, 2*certain)
	return int64(mean)
}

// Max returns the largest number that can be drawn.
func (d Dist) Max() int64 {
	if len(d.points) == 0 {
		return 0
	}
	return d.points[len(d.points)-1].v
}

// Min returns the smallest number that can be drawn.
func (d Dist) Min() int64 {
	if len(d.points) == 0 {
		return 0
	}
	return d.points[0].v
}

// Scaled returns the distribution of num/den times what d draws, at most most.
func (d Dist) Scaled(num, den, most int64) Dist {
	out := Dist{make([]point, len(d.points))}
	for i, q := range d.points {
		out.points[i] = point{q.p, min(most, int64(state.MulDiv(uint64(q.v), uint64(num), uint64(den))))}
	}
	return out
}

// distFile is how a distribution is written: exactly one of these.
type distFile struct {
	Fixed     *Quantity     `json:"fixed"`
	Uniform   []Quantity    `json:"uniform"`
	Quantiles [][2]Quantity `json:"quantiles"`
	LogNormal *logNormal    `json:"lognormal"`
}

// logNormal is a log-normal distribution that is cut at Min and Max, with the
// mean that is left after the cut. SigmaPPM is the standard deviation of the
// logarithm.
type logNormal struct {
	Mean     Quantity `json:"mean"`
	SigmaPPM Quantity `json:"sigma_ppm"`
	Min      Quantity `json:"min"`
	Max      Quantity `json:"max"`
}

// UnmarshalJSON reads {"fixed": v}, {"uniform": [least, most]}, {"quantiles":
// [[ppm, v], ...]} or {"lognormal": {"mean", "sigma_ppm", "min", "max"}}.
func (d *Dist) UnmarshalJSON(text []byte) error {
	var f distFile
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return fmt.Errorf("distribution: %w", err)
	}
	var err error
	switch {
	case f.Fixed != nil && f.Uniform == nil && f.Quantiles == nil && f.LogNormal == nil:
		*d = Fixed(int64(*f.Fixed))
	case f.Fixed == nil && len(f.Uniform) == 2 && f.Quantiles == nil && f.LogNormal == nil:
		*d, err = quantiles([][2]Quantity{{0, f.Uniform[0]}, {million, f.Uniform[1]}})
	case f.Fixed == nil && f.Uniform == nil && f.Quantiles != nil && f.LogNormal == nil:
		*d, err = quantiles(f.Quantiles)
	case f.Fixed == nil && f.Uniform == nil && f.Quantiles == nil && f.LogNormal != nil:
		*d, err = f.LogNormal.dist()
	default:
		err = errors.New("distribution: write one of fixed, uniform with two numbers, quantiles and lognormal")
	}
	return err
}

func quantiles(table [][2]Quantity) (Dist, error) {
	var d Dist
	for i, q := range table {
		p := state.MulDiv(uint64(q[0]), certain, million)
		if i > 0 && (p <= d.points[i-1].p || int64(q[1]) < d.points[i-1].v) {
			return Dist{}, fmt.Errorf("distribution: quantile %d of the table is not above the one before", i+1)
		}
		d.points = append(d.points, point{p, int64(q[1])})
	}
	if len(table) < 2 || table[0][0] != 0 || table[len(table)-1][0] != million {
		return Dist{}, errors.New("distribution: quantiles go from 0 to 1000000 ppm")
	}
	return d, nil
}

// sigmaPPMMax keeps exponents in range: e^(4.3*3) is 400,000.
const sigmaPPMMax = 3 * million

// dist looks for the median with which the cut distribution has the mean.
func (l *logNormal) dist() (Dist, error) {
	if l.SigmaPPM > sigmaPPMMax {
		return Dist{}, fmt.Errorf("distribution: sigma_ppm %d is above %d", l.SigmaPPM, sigmaPPMMax)
	}
	if l.Min >= l.Max || l.Mean <= l.Min || l.Mean >= l.Max {
		return Dist{}, errors.New("distribution: lognormal needs min < mean < max")
	}
	median := sort.Search(int(l.Max), func(median int) bool {
		return l.around(int64(median)).Mean() >= int64(l.Mean)
	})
	return l.around(int64(median)), nil
}

// around returns the distribution with a median, before the cut.
func (l *logNormal) around(median int64) Dist {
	var d Dist
	add := func(p uint64, v uint64) {
		d.points = append(d.points, point{p, min(max(int64(min(v, quantityMax)), int64(l.Min)), int64(l.Max))})
	}
	factor := func(i int) uint64 { return exp(state.MulDiv(normal[i].z, uint64(l.SigmaPPM), million)) }
	last := len(normal) - 1
	add(0, state.MulDiv(uint64(median), one, factor(last)))
	for i := last; i > 0; i-- {
		add(certain-normal[i].p, state.MulDiv(uint64(median), one, factor(i)))
	}
	for i := range normal {
		add(normal[i].p, state.MulDiv(uint64(median), factor(i), one))
	}
	add(certain, state.MulDiv(uint64(median), factor(last), one))
	return d
}
