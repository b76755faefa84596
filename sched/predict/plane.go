package predict

import "rota/fsm/state"

const (
	// one is a slope of 1.
	one = 1 << 16
	// steepest bounds slopes.
	steepest = 16 * one
	// sweeps is how often all slopes are adjusted when an example comes.
	sweeps = 4
	// ridge counts as five examples that are an octave from the mean, and say that a feature
	// tells nothing.
	ridge = 5 * 4 * 4
)

// sum adds an example to the sums of a plane, or takes it off.
func sum(p *state.LengthPlane, x *[state.LengthExampleBytes]byte, in bool) {
	sign := uint64(1)
	if !in {
		sign = -sign // unsigned numbers wrap
	}
	y := uint64(x[state.LengthFeatures])
	p.Y += sign * y
	k := 0
	for i := range p.X {
		p.X[i] += sign * uint64(x[i])
		p.XY[i] += sign * uint64(x[i]) * y
		for j := range i + 1 {
			p.XX[k] += sign * uint64(x[i]) * uint64(x[j])
			k++
		}
	}
}

// fit adjusts the slopes of a plane through n examples: it sets one after the other to what is
// best while the others stay (Gauss and Seidel). As each example changes the plane a little, and
// the slopes are kept, a few sweeps are enough.
func fit(p *state.LengthPlane, n int) {
	count := int64(n)
	for range sweeps {
		for i := range p.Slopes {
			x := int64(p.X[i])
			rest := (count*int64(p.XY[i]) - x*int64(p.Y)) * one
			for j, slope := range p.Slopes {
				if j != i {
					rest -= (count*int64(p.XX[product(i, j)]) - x*int64(p.X[j])) * slope
				}
			}
			p.Slopes[i] = min(max(rest/(count*int64(p.XX[product(i, i)])-x*x+ridge*count), -steepest), steepest)
		}
	}
}

// product is where the sum of the products of two features is.
func product(i, j int) int {
	i, j = max(i, j), min(i, j)
	return i*(i+1)/2 + j
}

// on returns the position on the plane through n examples.
func on(p *state.LengthPlane, n int, f *[state.LengthFeatures]uint8) int {
	count := int64(n)
	rise := int64(0)
	for i, slope := range p.Slopes {
		rise += slope * (count*int64(f[i]) - int64(p.X[i]))
	}
	at := int64(p.Y)*unit/count + unit/2 + rise/(count*one/unit)
	return int(min(max(at, 0), int64(position(state.LengthTokensMax))))
}
