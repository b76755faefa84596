package rpc

import (
	"slices"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	allowedCoresMax = 64
	pointsMax       = 64
	unitsMax        = 1 << 20
	whole           = 1_000_000 // parts per million
)

// checkAllowed checks the numbers of cores that an action can use, if it names
// them.
func checkAllowed(r *rotav1.Resources) *violation {
	set := r.AllowedCores
	if len(set) == 0 {
		return nil
	}
	const path = "resources.allowed_cores"
	switch {
	case r.Cores != nil || r.MaxCores != 0:
		return wrong(path, "says all about cores: leave out cores and max_cores")
	case len(set) > allowedCoresMax:
		return wrong(path, "must have at most %d numbers, has %d", allowedCoresMax, len(set))
	case set[0] == 0:
		return wrong(path, "must be at least 1 each, has 0")
	case set[len(set)-1] > coresMax:
		return wrong(path, "must be at most %d each, has %d", coresMax, set[len(set)-1])
	}
	for i := 1; i < len(set); i++ {
		if set[i] <= set[i-1] {
			return wrong(path, "must ascend: %d comes after %d", set[i], set[i-1])
		}
	}
	return nil
}

// checkProfile checks what a client knows of how long an action takes.
func checkProfile(p *rotav1.Profile) *violation {
	if p == nil {
		return nil
	}
	if v := checkDuration("profile.duration", p.Duration); v != nil {
		return v
	}
	if p.Duration != nil && p.Duration.AsDuration() == 0 {
		return wrong("profile.duration", "must not be 0: leave it out if it is not known")
	}
	switch s := p.Speedup.(type) {
	case *rotav1.Profile_SerialPpm:
		if s.SerialPpm > whole {
			return wrong("profile.serial_ppm", "must be at most %d, is %d", whole, s.SerialPpm)
		}
	case *rotav1.Profile_Table:
		return checkSpeedup(s.Table.GetPoints())
	}
	return nil
}

// checkSpeedup refuses a curve on which more units would be slower.
func checkSpeedup(points []*rotav1.SpeedupPoint) *violation {
	const path = "profile.table.points"
	if v := checkCount(path, "point", len(points), pointsMax); v != nil {
		return v
	}
	last, speed := uint32(0), uint64(whole)
	for _, p := range points {
		units, ratio := p.GetUnits(), p.GetRatioPpm()
		switch now := uint64(units) * uint64(ratio); {
		case units <= last || units > unitsMax:
			return wrong(path, "must ascend in units, from 1 to %d: %d comes after %d", unitsMax, units, last)
		case ratio == 0 || ratio > whole:
			return wrong(path, "must have ratios between 1 and %d ppm: it is %d for %d units", whole, ratio, units)
		case units == 1 && ratio != whole:
			return wrong(path, "must have a ratio of %d ppm for 1 unit: it is %d", whole, ratio)
		case now < speed:
			return wrong(path, "must not fall in speed: %d units would be slower than %d", units, max(last, 1))
		default:
			last, speed = units, now
		}
	}
	return nil
}

// hasUnknownCurve reports whether a profile says something that this server does
// not know.
func hasUnknownCurve(p *rotav1.Profile) bool {
	if p == nil {
		return false
	}
	table := p.GetTable()
	return hasUnknown(p) || table != nil && hasUnknown(table) ||
		slices.ContainsFunc(table.GetPoints(), func(q *rotav1.SpeedupPoint) bool { return hasUnknown(q) })
}
