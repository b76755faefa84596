package lengths

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is an estimate with its 95 % confidence interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// guess is what was predicted of the whole length of a session, in tokens.
type guess struct{ point, p50, p90 float64 }

// guesses are those of all predictors.
type guesses struct {
	sessions   []Session
	after      []int
	predictors []string
	at         map[string][]map[int][]guess // by predictor, session, turns, repetition
}

func newGuesses(sessions []Session, after []int, siblings bool) *guesses {
	g := &guesses{sessions: sessions, after: after, at: map[string][]map[int][]guess{}}
	g.predictors = []string{"rota", "least squares", "prompt", "history mean", "tokens so far"}
	if siblings {
		g.predictors = slices.Insert(g.predictors, 1, "rota with siblings", "mean of siblings")
	}
	for _, name := range g.predictors {
		g.at[name] = make([]map[int][]guess, len(sessions))
	}
	return g
}

func (g *guesses) put(predictor string, session, turns int, what guess) {
	if !slices.Contains(g.after, turns) {
		return
	}
	of := g.at[predictor]
	if of[session] == nil {
		of[session] = map[int][]guess{}
	}
	of[session][turns] = append(of[session][turns], what)
}

// pair is what was predicted of a session, in each repetition, and the truth.
type pair struct {
	guesses []guess
	truth   float64
	group   int
}

func (g *guesses) results(s Setup) (out []Result) {
	for _, k := range g.after {
		for _, name := range g.predictors {
			pairs := g.pairs(name, k)
			if len(pairs) == 0 || slices.ContainsFunc(pairs, func(p pair) bool { return len(p.guesses) < s.Repeats }) {
				continue // it cannot predict then
			}
			r := Result{After: k, Predictor: name, Sessions: len(pairs), WithinP50: -1, WithinP90: -1}
			r.Recall10 = bootstrap(pairs, s, func(x, y []float64) float64 { return recall(x, y, 0.1) })
			r.Recall20 = bootstrap(pairs, s, func(x, y []float64) float64 { return recall(x, y, 0.2) })
			r.Pearson = bootstrap(pairs, s, pearson)
			if pairs[0].guesses[0].p90 > 0 {
				r.WithinP50 = part(pairs, func(g guess) float64 { return g.p50 })
				r.WithinP90 = part(pairs, func(g guess) float64 { return g.p90 })
			}
			out = append(out, r)
		}
	}
	return out
}

func (g *guesses) pairs(name string, turns int) (out []pair) {
	for i, of := range g.at[name] {
		if what, ok := of[turns]; ok {
			out = append(out, pair{what, float64(g.sessions[i].Total()), g.sessions[i].Group})
		}
	}
	return out
}

// part is of how many sessions the truth is at most a quantile.
func part(pairs []pair, quantile func(guess) float64) float64 {
	n, all := 0, 0
	for _, p := range pairs {
		for _, g := range p.guesses {
			all++
			if p.truth <= quantile(g) {
				n++
			}
		}
	}
	return float64(n) / float64(all)
}

// bootstrap returns the mean of a measure over repetitions, with the interval that it has in
// samples of groups, drawn with replacement.
func bootstrap(pairs []pair, s Setup, measure func(guesses, truth []float64) float64) Interval {
	groups := map[int][]pair{}
	var order []int
	for _, p := range pairs {
		if groups[p.group] == nil {
			order = append(order, p.group)
		}
		groups[p.group] = append(groups[p.group], p)
	}
	var x, y []float64
	mean := func(sample []pair) (sum float64) {
		for repetition := range s.Repeats {
			x, y = x[:0], y[:0]
			for _, p := range sample {
				x, y = append(x, p.guesses[repetition].point), append(y, p.truth)
			}
			sum += measure(x, y)
		}
		return sum / float64(s.Repeats)
	}
	r := rand.New(rand.NewPCG(s.Seed, 0xb007))
	values := make([]float64, s.Bootstraps)
	var sample []pair
	for i := range values {
		sample = sample[:0]
		for range order {
			sample = append(sample, groups[order[r.IntN(len(order))]]...)
		}
		values[i] = mean(sample)
	}
	slices.Sort(values)
	return Interval{mean(pairs), values[len(values)/40], values[len(values)-1-len(values)/40]}
}

// recall returns which part of the longest sessions are among as many that are predicted to be
// longest. Equal predictions are in a random order, so this is an expectation.
func recall(guesses, truth []float64, of float64) float64 {
	n := max(1, int(math.Round(of*float64(len(truth)))))
	long, last := nthLargest(truth, n), nthLargest(guesses, n)
	above, equal := 0, 0
	for _, g := range guesses {
		if g > last {
			above++
		} else if g == last {
			equal++
		}
	}
	hits, all := 0.0, 0.0
	for i, t := range truth {
		if t < long {
			continue
		}
		all++
		switch {
		case guesses[i] > last:
			hits++
		case guesses[i] == last:
			hits += float64(n-above) / float64(equal)
		}
	}
	return hits / all
}

func nthLargest(values []float64, n int) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)-n]
}

// pearson returns the correlation of predictions and truth, 0 if one of them is always the same.
func pearson(guesses, truth []float64) float64 {
	var x, y, xx, yy, xy float64
	n := float64(len(truth))
	for i := range truth {
		x, y = x+guesses[i], y+truth[i]
	}
	x, y = x/n, y/n
	for i := range truth {
		dx, dy := guesses[i]-x, truth[i]-y
		xx, yy, xy = xx+dx*dx, yy+dy*dy, xy+dx*dy
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}
