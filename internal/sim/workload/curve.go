package workload

import (
	"errors"
	"fmt"

	"rota/fsm/state"
)

// Curve says how an action's duration changes with the units of its key
// resource: by Amdahl's law with a serial fraction, or by a table of elasticity
// ratios E(m) with getDur(m) = T/(E(m)*m), the paper's equation (1).
type Curve struct {
	// SerialPPM is the part that gains nothing from more units, if Ratio is nil.
	SerialPPM int64
	// Ratio holds E(m) for each allowed number of units.
	Ratio []Ratio
}

// Ratio is E(Units) in parts per million.
type Ratio struct {
	Units, PPM int64
}

// Duration returns how long an action of a duration at one unit takes with
// units, rounded up. A table answers for the largest number of units it holds
// that is not above.
func (c Curve) Duration(single, units int64) int64 {
	if units <= 1 || single <= 0 {
		return single
	}
	if c.Ratio == nil {
		serial := state.MulDiv(uint64(single), uint64(c.SerialPPM), million)
		parallel := uint64(single) - serial
		return int64(serial + (parallel+uint64(units)-1)/uint64(units))
	}
	best := c.Ratio[0]
	for _, r := range c.Ratio[1:] {
		if r.Units <= units {
			best = r
		}
	}
	return int64(state.MulDiv(uint64(single), million, uint64(best.Units*best.PPM)))
}

// PPM returns E(units).
func (c Curve) PPM(units int64) int64 {
	if units <= 1 {
		return million
	}
	const single = 1 << 40
	return int64(state.MulDiv(single, million, uint64(units*c.Duration(single, units))))
}

// ratioCheck finds what is wrong with a table.
func ratioCheck(table [][2]int64) error {
	if len(table) == 0 || table[0] != [2]int64{1, million} {
		return errors.New("ratio_ppm begins with [1, 1000000]")
	}
	for i := 1; i < len(table); i++ {
		a, b := table[i-1], table[i]
		switch {
		case b[0] <= a[0] || b[0] > unitsMax:
			return fmt.Errorf("ratio_ppm: units %d are not above the ones before or above %d", b[0], unitsMax)
		case b[1] <= 0 || b[1] > a[1]:
			return fmt.Errorf("ratio_ppm: the ratio %d at %d units is not positive or above the one before", b[1], b[0])
		case b[0]*b[1] < a[0]*a[1]:
			return fmt.Errorf("ratio_ppm: %d units are slower than %d", b[0], a[0])
		}
	}
	return nil
}
