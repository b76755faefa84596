package predict

import (
	"encoding/binary"

	"rota/fsm/state"
)

// expectation is what examples predict.
type expectation struct {
	tokens estimate
	// near and plane are the two positions that tokens.mean is combined of.
	near, plane int
	// turns is the position of the mean of turns.
	turns int
	// variance and siblingVariance are the mean squared errors of such predictions, and of those
	// from siblings.
	variance, siblingVariance uint64
}

// estimate has positions.
type estimate struct{ mean, p50, p90 int }

// expect predicts from the stage that the trajectory is in. Between the turns with which two
// stages begin, the prediction is on the line between theirs.
func expect(c *state.LengthClass, t *state.LengthTrace, f *[state.LengthFeatures]uint8) expectation {
	stage := state.LengthStageOf(t.Turns)
	g := usable(c, stage)
	if g == nil {
		p := position(unknownTokens)
		return expectation{
			tokens: estimate{p, p, p + spread}, near: p, plane: p, turns: position(unknownTurns),
			variance: errorUnknown, siblingVariance: errorUnknown,
		}
	}
	e := of(g, f)
	if next := stage + 1; next < state.LengthStages && next < len(c.Stages) && len(c.Stages[next].Examples) >= few*state.LengthExampleBytes {
		begin, end := state.LengthStageTurns(stage), state.LengthStageTurns(next)
		if t.Turns > begin {
			e.towards(of(&c.Stages[next], f), int(t.Turns-begin), int(end-begin))
		}
	}
	return e
}

// usable returns the stage if it has enough examples, or the last one before it that has, or the
// first; nil if that has none.
func usable(c *state.LengthClass, stage int) *state.LengthStage {
	if c == nil || len(c.Stages) == 0 || c.Stages[0].Seen == 0 {
		return nil
	}
	for i := min(stage, len(c.Stages)-1); i > 0; i-- {
		if len(c.Stages[i].Examples) >= few*state.LengthExampleBytes {
			return &c.Stages[i]
		}
	}
	return &c.Stages[0]
}

// towards moves an expectation to another one by a fraction of the way.
func (e *expectation) towards(o expectation, part, whole int) {
	for _, p := range [...]struct {
		from *int
		to   int
	}{{&e.tokens.mean, o.tokens.mean}, {&e.tokens.p50, o.tokens.p50}, {&e.tokens.p90, o.tokens.p90}, {&e.turns, o.turns}, {&e.near, o.near}, {&e.plane, o.plane}} {
		*p.from += (p.to - *p.from) * part / whole
	}
}

// of predicts from one stage. Near examples and the plane through all are combined.
func of(g *state.LengthStage, f *[state.LengthFeatures]uint8) expectation {
	e := near(g, f)
	e.near, e.plane = e.tokens.mean, e.tokens.mean
	n := len(g.Examples) / state.LengthExampleBytes
	if n < many {
		return e
	}
	e.plane = on(&g.Plane, n, f)
	near, plane := sharpened(g.NearError, g.PlaneError)
	e.shift(weigh(e.near, near, e.plane, plane) - e.near)
	return e
}

// shift multiplies all that is predicted.
func (e *expectation) shift(by int) {
	e.tokens = estimate{max(0, e.tokens.mean+by), max(0, e.tokens.p50+by), max(0, e.tokens.p90+by)}
	e.turns = max(0, e.turns+by)
}

// weigh returns the mean of two positions, each by the inverse of its mean squared error.
func weigh(a int, errorOfA uint64, b int, errorOfB uint64) int {
	x, y := int64(max(1, errorOfA)), int64(max(1, errorOfB))
	return int((int64(a)*y + int64(b)*x) / (x + y))
}

// sharpened returns errors that are apart by the fourth power of their ratio. Both predictions
// know the same features and err alike, so that of the better one little is missing in the other.
func sharpened(a, b uint64) (uint64, uint64) {
	const whole = 1 << 16
	most := max(1, a, b)
	power := func(e uint64) uint64 {
		r := e * whole / most
		r = r * r / whole
		return r * r / whole
	}
	return power(a), power(b)
}

// near predicts that a trajectory goes on as the examples do that are like it.
func near(g *state.LengthStage, f *[state.LengthFeatures]uint8) expectation {
	var (
		mass          [buckets]uint64
		weight, turns uint64
	)
	own := binary.LittleEndian.Uint64(f[:])
	for b := g.Examples; len(b) >= state.LengthExampleBytes; b = b[state.LengthExampleBytes:] {
		x := (*[state.LengthExampleBytes]byte)(b)
		w := uint64(weights[distance(own, binary.LittleEndian.Uint64(x[:]))])
		mass[x[state.LengthFeatures]] += w
		turns += w * uint64(x[state.LengthFeatures+1])
		weight += w
	}
	return expectation{
		tokens: distribution(&mass, weight), turns: int(turns*unit/weight) + unit/2,
		variance: g.Error, siblingVariance: siblingError(g),
	}
}

// distance returns the sum of the differences of eight features, of one byte each. It takes four
// at a time, in lanes of 16 bits.
func distance(a, b uint64) int {
	const bytes, ones = 0x00ff_00ff_00ff_00ff, 0x0001_0001_0001_0001
	lanes := func(a, b uint64) uint64 {
		d := (a | ones<<8) - b                      // 256 + a - b
		negative := d>>8&ones ^ ones                // 1 where a < b
		return (d&bytes ^ negative*0xff) + negative // there 256 minus the low byte
	}
	sum := lanes(a&bytes, b&bytes) + lanes(a>>8&bytes, b>>8&bytes)
	return int(sum * ones >> 48)
}

// buckets is how many buckets there are.
const buckets = 256

// weights are those of examples by their distance: the inverse square of the distance, to which
// half an octave is added. So one example that is the same does not outvote all others.
var weights = func() (w [state.LengthFeatures*(buckets-1) + 1]uint32) {
	for d := range w {
		w[d] = uint32((1 << 32) / ((d + 2) * (d + 2)))
	}
	return w
}()

// distribution returns the mean of positions by their weight, and quantiles. Within a bucket
// weight is spread evenly.
func distribution(mass *[buckets]uint64, weight uint64) (e estimate) {
	var below, sum uint64
	half, most := (weight+1)/2, weight-weight/10
	for b, m := range mass {
		if m == 0 {
			continue
		}
		sum += m * uint64(b)
		if below < half && below+m >= half {
			e.p50 = b*unit + int((half-below)*unit/m)
		}
		if below < most && below+m >= most {
			e.p90 = b*unit + int((most-below)*unit/m)
		}
		below += m
	}
	e.mean = int(sum*unit/weight) + unit/2
	return e
}

// combined is the position that examples and siblings predict together: each counts by the
// inverse of its mean squared error. That of n siblings is as if there were infinitely many, times
// (n+1)/n.
func (e *expectation) combined(siblings uint32, position int) int {
	n := uint64(siblings)
	return weigh(e.tokens.mean, e.variance, position, e.siblingVariance*(n+1)/n)
}

func siblingError(g *state.LengthStage) uint64 {
	if g.SiblingsSeen == 0 {
		return errorUnknown
	}
	return g.SiblingError
}
