package ledger

import "fmt"

// Config are the sizes and bounds of a ledger.
type Config struct {
	// Slots is how many slots the horizon has. How long one is, is the business of
	// who turns time into slots.
	Slots int64
	// StretchPPM is by how much the period of a group may lengthen a cycle.
	StretchPPM int64
	// DutyPPM is for how much of its period a group may be held: the rest takes up
	// what operations take longer than their profiles say.
	DutyPPM int64
	// WaitPPM is how much of its time a job may wait for its turns before its group
	// takes no more jobs (§7.2).
	WaitPPM int64
	// ShiftPPM is alpha, the largest shift of a start, as a part of the cycle.
	ShiftPPM int64
	// PushPPM is how late a job may be, as a part of its cycle, for others to make
	// room for it whatever that costs them. For one that is later they do so only if
	// they wait for less, all together, than it would.
	PushPPM int64
	// MarginPPM is by how much operations are expected to vary, as a part of the
	// cycle. Closer neighbours count as interference.
	MarginPPM int64
	// CyclesMax is how many cycles a member may do in the period of its group.
	CyclesMax int64
	// MembersMax is how many jobs may share a group.
	MembersMax int
	// EndWeight and StartWeight are w1 and w2 of equation 1.
	EndWeight, StartWeight int64
}

// Default is a horizon of 8 hours with slots of a second (§5.2.1).
func Default() Config {
	return Config{
		Slots:       28_800,
		StretchPPM:  50_000,
		DutyPPM:     900_000,
		WaitPPM:     50_000,
		ShiftPPM:    million,
		PushPPM:     50_000,
		MarginPPM:   20_000,
		CyclesMax:   8,
		MembersMax:  16,
		EndWeight:   1,
		StartWeight: 1,
	}
}

// weightMax keeps costs within 64 bits.
const weightMax = 1000

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	for _, f := range []struct {
		name              string
		is, least, atMost int64
	}{
		{"the number of slots", c.Slots, 1, SlotsMax},
		{"the stretch in ppm", c.StretchPPM, 0, million},
		{"the duty in ppm", c.DutyPPM, 1, million},
		{"the waiting time in ppm", c.WaitPPM, 0, million},
		{"the shift in ppm", c.ShiftPPM, 0, million},
		{"the push in ppm", c.PushPPM, 0, million},
		{"the margin in ppm", c.MarginPPM, 0, million},
		{"the number of cycles in a period", c.CyclesMax, 1, 64},
		{"the number of jobs of a group", int64(c.MembersMax), 1, 64},
		{"the weight of the end", c.EndWeight, 0, weightMax},
		{"the weight of the start", c.StartWeight, 0, weightMax},
	} {
		if f.is < f.least || f.is > f.atMost {
			return fmt.Errorf("%s is %d, and must be %d to %d", f.name, f.is, f.least, f.atMost)
		}
	}
	return nil
}
