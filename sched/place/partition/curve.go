package partition

import (
	"fmt"
	"sort"
)

// Bounds. What is above them counts as being at them, so no product overflows 63 bits.
const (
	// LengthMax is the longest trajectory, in tokens.
	LengthMax = 1 << 24
	// TokenMaxNS is the longest time for a token.
	TokenMaxNS = 1 << 38
	// CountMax is the largest batch of a profile, and the most trajectories that are placed.
	CountMax = 1 << 20
)

// Point is a point of a measured profile: in a batch of this size, each request waits TokenNS
// nanoseconds for its next token.
type Point struct {
	Batch   int
	TokenNS int64
}

// Curve is the time for a token against the number of trajectories on a worker. It never falls.
type Curve struct {
	segments []segment
}

// segment is a line that begins at a number of trajectories; it rises by rise every run of them.
type segment struct {
	from      int64
	tokenNS   int64
	run, rise int64
}

// NewCurve makes a curve of a profile, its points in increasing order of batch sizes. Between two
// points it is a line, and where a point lies below the one before, it is flat. Beyond the last
// point the line through the last two goes on; beyond an only point, and beyond the slots of the
// worker (0: no limit), trajectories take turns: the worker generates no more tokens a second.
func NewCurve(points []Point, slots int) (Curve, error) {
	if len(points) == 0 {
		return Curve{}, fmt.Errorf("a profile has no points: give the time for a token at one batch size or more")
	}
	if slots < 0 || slots > CountMax {
		return Curve{}, fmt.Errorf("a worker has %d slots: give 0 to %d", slots, CountMax)
	}
	c := Curve{segments: make([]segment, 0, len(points)+1)}
	for i, p := range points {
		switch {
		case p.Batch < 1 || p.Batch > CountMax:
			return Curve{}, fmt.Errorf("a profile has a point at batch size %d: give 1 to %d", p.Batch, CountMax)
		case i > 0 && p.Batch <= points[i-1].Batch:
			return Curve{}, fmt.Errorf("a profile has batch size %d after %d: give points in increasing order", p.Batch, points[i-1].Batch)
		case p.TokenNS < 1 || p.TokenNS > TokenMaxNS:
			return Curve{}, fmt.Errorf("a profile has %d ns for a token: give 1 to %d", p.TokenNS, int64(TokenMaxNS))
		}
		c.add(p)
	}
	if last := c.last(); last.run == 0 {
		c.share(last.from)
	}
	if slots > 0 {
		c.cut(int64(slots))
	}
	return c, nil
}

func (c *Curve) last() *segment { return &c.segments[len(c.segments)-1] }

// add appends a point, and turns the segment that ends there to it.
func (c *Curve) add(p Point) {
	s := segment{from: int64(p.Batch), tokenNS: p.TokenNS}
	if len(c.segments) > 0 {
		last := c.last()
		s.tokenNS = max(s.tokenNS, last.tokenNS)
		last.run, last.rise = s.from-last.from, s.tokenNS-last.tokenNS
		s.run, s.rise = last.run, last.rise
	}
	c.segments = append(c.segments, s)
}

// cut ends the curve at a number of slots: beyond it trajectories take turns.
func (c *Curve) cut(slots int64) {
	tokenNS := c.TokenNS(int(slots))
	n := sort.Search(len(c.segments), func(i int) bool { return c.segments[i].from >= slots })
	c.segments = append(c.segments[:n], segment{from: slots, tokenNS: tokenNS})
	c.share(slots)
}

// share makes the last segment one of constant throughput: n trajectories wait n/batch times as
// long as a batch does.
func (c *Curve) share(batch int64) {
	last := c.last()
	last.run, last.rise = batch, last.tokenNS
}

// TokenNS is the time for the next token of each of n trajectories, at most TokenMaxNS. Fewer than
// the smallest measured batch take as long as that.
func (c Curve) TokenNS(n int) int64 {
	i := len(c.segments) - 1
	for i > 0 && c.segments[i].from > int64(n) {
		i--
	}
	s := &c.segments[i]
	if int64(n) <= s.from {
		return s.tokenNS
	}
	return min(TokenMaxNS, s.tokenNS+(min(int64(n), CountMax)-s.from)*s.rise/s.run)
}

// Most is the largest number of trajectories whose tokens take at most tokenNS each; CountMax if
// it is not bounded.
func (c Curve) Most(tokenNS int64) int {
	if tokenNS >= TokenMaxNS {
		return CountMax
	}
	i := len(c.segments) - 1
	for i > 0 && c.segments[i].tokenNS > tokenNS {
		i--
	}
	s := &c.segments[i]
	switch {
	case s.tokenNS > tokenNS:
		return 0
	case s.rise == 0:
		return CountMax
	}
	// The largest d with floor(d*rise/run) <= tokenNS-s.tokenNS.
	return int(min(CountMax, s.from+((tokenNS-s.tokenNS+1)*s.run-1)/s.rise))
}
