package lengths

import (
	"math"

	"rota/fsm/state"
	"rota/sched/predict"
)

// squares predicts by least squares from the features that rota has: a plane through the
// logarithms of what was generated yet, for each stage. It is shrunk a little (ridge), so that
// features that are always the same do no harm.
type squares struct{ stages [state.LengthStages]plane }

// plane has the sums over the examples of a stage, and the coefficients once it is solved. The
// first column is 1.
type plane struct {
	sums   [columns][columns]float64
	right  [columns]float64
	beta   [columns]float64
	solved bool
}

const columns = 1 + state.LengthFeatures

// ridge counts as that many examples an octave from the mean.
const ridge = 5

// marks are how a session looks when it comes to each stage.
func marks(s *Session) []state.LengthMark {
	t := predict.Begin(nil, s.PromptTokens, predict.Siblings{})
	for _, r := range s.Turns {
		t = predict.Follow(nil, &t, r, predict.Siblings{})
	}
	return t.Marks
}

// row is a mark in octaves, about its middle.
func row(m *state.LengthMark) (x [columns]float64) {
	x[0] = 1
	for i, f := range m.Features {
		x[i+1] = (float64(f) - 32) / 4
	}
	return x
}

func (q *squares) add(s *Session) {
	for _, m := range marks(s) {
		if int(m.Turns) == len(s.Turns) {
			continue
		}
		p, x, y := &q.stages[m.Stage], row(&m), logOf(s.Total()-m.OutputTokens)
		for i := range x {
			for j := range x {
				p.sums[i][j] += x[i] * x[j]
			}
			p.right[i] += x[i] * y
		}
	}
}

// total predicts what a session generates in all, if a stage begins with so many turns and there
// was an example.
func (q *squares) total(s *Session, turns int) (float64, bool) {
	for _, m := range marks(s) {
		if p := &q.stages[m.Stage]; int(m.Turns) == turns && p.sums[0][0] > 0 {
			x, sum := row(&m), 0.0
			for i, b := range p.solve() {
				sum += b * x[i]
			}
			return float64(m.OutputTokens) + math.Exp2(min(40, sum)), true
		}
	}
	return 0, false
}

// solve eliminates (Gauss). The sums are positive definite, so no pivot is 0.
func (p *plane) solve() [columns]float64 {
	if p.solved {
		return p.beta
	}
	a, b := p.sums, p.right
	for i := 1; i < columns; i++ {
		a[i][i] += ridge
	}
	for i := range a {
		for j := i + 1; j < columns; j++ {
			f := a[j][i] / a[i][i]
			for k := i; k < columns; k++ {
				a[j][k] -= f * a[i][k]
			}
			b[j] -= f * b[i]
		}
	}
	for i := columns - 1; i >= 0; i-- {
		for k := i + 1; k < columns; k++ {
			b[i] -= a[i][k] * b[k]
		}
		b[i] /= a[i][i]
	}
	p.beta, p.solved = b, true
	return b
}
