package lengths

import (
	"context"
	"fmt"
	"math/rand/v2"

	"rota/fsm/state"
	"rota/sched/predict"
)

// stagger is by how many turns a session of a group begins after the one before.
const stagger = 8

// Setup says how to evaluate.
type Setup struct {
	// Folds are dealt anew in each of Repeats repetitions.
	Folds, Repeats int
	Seed           uint64
	// After is after how many turns to predict.
	After []int
	// Bootstraps is how many samples the intervals are from.
	Bootstraps int
}

// Check returns an error unless sessions can be evaluated so.
func (s *Setup) Check(sessions []Session) error {
	groups := map[int]bool{}
	for i := range sessions {
		groups[sessions[i].Group] = true
	}
	if len(groups) < 2 {
		return fmt.Errorf("there must be 2 sessions that begin differently, of %d sessions there are %d", len(sessions), len(groups))
	}
	if s.Folds < 2 || s.Folds > len(groups) {
		return fmt.Errorf("there must be from 2 folds to one for each of %d groups of sessions, not %d", len(groups), s.Folds)
	}
	if s.Repeats < 1 || s.Repeats > 100 {
		return fmt.Errorf("there must be 1 to 100 repetitions, not %d", s.Repeats)
	}
	if s.Bootstraps < 100 || s.Bootstraps > 100_000 {
		return fmt.Errorf("there must be 100 to 100,000 bootstrap samples, not %d", s.Bootstraps)
	}
	for _, k := range s.After {
		if k < 0 || k > 1000 {
			return fmt.Errorf("predictions are made after 0 to 1000 turns, not %d", k)
		}
	}
	return nil
}

// Result is how good one predictor is after some turns.
type Result struct {
	After     int    `json:"after_turns"`
	Predictor string `json:"predictor"`
	// Sessions that have more turns.
	Sessions int      `json:"sessions"`
	Recall10 Interval `json:"recall_longest_10_percent"`
	Recall20 Interval `json:"recall_longest_20_percent"`
	Pearson  Interval `json:"pearson"`
	// Within are the parts of all sessions that generate at most the P50 and the P90; -1: it has
	// none.
	WithinP50 float64 `json:"within_p50"`
	WithinP90 float64 `json:"within_p90"`
}

// Evaluate predicts every session by what was learned from those of the other folds.
func Evaluate(ctx context.Context, sessions []Session, s Setup) ([]Result, error) {
	if err := s.Check(sessions); err != nil {
		return nil, err
	}
	siblings := siblings(sessions)
	guesses := newGuesses(sessions, s.After, siblings != nil)
	var fold map[int]int
	for i := range s.Repeats * s.Folds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := i % s.Folds
		if f == 0 {
			fold = folds(sessions, s, uint64(i/s.Folds))
		}
		var train, test []*Session
		var at []int
		for i := range sessions {
			if fold[sessions[i].Group] == f {
				test, at = append(test, &sessions[i]), append(at, i)
			} else {
				train = append(train, &sessions[i])
			}
		}
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
		r.Shuffle(len(train), func(i, j int) { train[i], train[j] = train[j], train[i] })
		m := learn(train, siblings)
		for i, session := range test {
			m.predict(guesses, at[i], session)
		}
	}
	return guesses.results(s), nil
}

// folds deals groups.
func folds(sessions []Session, s Setup, repetition uint64) map[int]int {
	var groups []int
	fold := map[int]int{}
	for i := range sessions {
		if _, ok := fold[sessions[i].Group]; !ok {
			fold[sessions[i].Group] = 0
			groups = append(groups, sessions[i].Group)
		}
	}
	r := rand.New(rand.NewPCG(s.Seed, 0xf01d+repetition))
	r.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	for i, g := range groups {
		fold[g] = i % s.Folds
	}
	return fold
}

// siblings returns the groups in which sessions begin one after the other; nil if there are none,
// but only copies.
func siblings(sessions []Session) map[int][]*Session {
	groups, found := map[int][]*Session{}, false
	for i := range sessions {
		s := &sessions[i]
		groups[s.Group] = append(groups[s.Group], s)
		found = found || s.Slot > 0
	}
	if !found {
		return nil
	}
	return groups
}

// finished returns what the siblings of a session have done when it has so many turns: those that
// began before it have had more, those that began after it fewer.
func finished(groups map[int][]*Session, s *Session, turns int) predict.Siblings {
	var n, sum uint64
	for _, o := range groups[s.Group] {
		if o != s && len(o.Turns) <= turns+stagger*(s.Slot-o.Slot) {
			n++
			sum += o.Total()
		}
	}
	if n == 0 {
		return predict.Siblings{}
	}
	return predict.Siblings{Finished: uint32(n), MeanTokens: sum / n}
}

// models is what was learned of some sessions.
type models struct {
	// class learned with siblings, alone without.
	class, alone *state.LengthClass
	siblings     map[int][]*Session
	history      history
	squares      squares
}

func learn(train []*Session, siblings map[int][]*Session) *models {
	m := &models{siblings: siblings, class: &state.LengthClass{Policy: "p"}, alone: &state.LengthClass{Policy: "p"}}
	for i, s := range train {
		m.alone = learnOne(m.alone, s, nil, int64(i+1))
		if siblings != nil {
			m.class = learnOne(m.class, s, siblings, int64(i+1))
		}
		m.history.add(s)
		m.squares.add(s)
	}
	return m
}

func learnOne(c *state.LengthClass, s *Session, all map[int][]*Session, now int64) *state.LengthClass {
	t := predict.Begin(c, s.PromptTokens, finished(all, s, 0))
	for i, r := range s.Turns {
		t = predict.Follow(c, &t, r, finished(all, s, i+1))
	}
	return predict.Learn(c, &t, false, now)
}

// predict notes what each predictor says of one session.
func (m *models) predict(g *guesses, i int, s *Session) {
	m.follow(g, "rota", i, s, m.alone, nil)
	if m.siblings != nil {
		m.follow(g, "rota with siblings", i, s, m.class, m.siblings)
	}
	for _, k := range g.after {
		if k >= len(s.Turns) {
			continue
		}
		g.put("prompt", i, k, guess{point: m.history.byPrompt(s)})
		if p, ok := m.squares.total(s, k); ok {
			g.put("least squares", i, k, guess{point: p})
		}
		g.put("history mean", i, k, guess{point: m.history.mean()})
		if k > 0 {
			g.put("tokens so far", i, k, guess{point: m.history.extrapolate(s, k)})
		}
		if sib := finished(m.siblings, s, k); m.siblings != nil {
			p := m.history.mean()
			if sib.Finished > 0 {
				p = float64(max(sib.MeanTokens, s.Until(k)))
			}
			g.put("mean of siblings", i, k, guess{point: p})
		}
	}
}

// follow predicts as the state machine does.
func (m *models) follow(g *guesses, name string, i int, s *Session, c *state.LengthClass, all map[int][]*Session) {
	t := predict.Begin(c, s.PromptTokens, finished(all, s, 0))
	for k := range s.Turns {
		if k > 0 {
			t = predict.Follow(c, &t, s.Turns[k-1], finished(all, s, k))
		}
		q := predict.Remaining(c, &t, finished(all, s, k))
		sofar := float64(s.Until(k))
		g.put(name, i, k, guess{point: sofar + float64(q.Tokens), p50: sofar + float64(q.P50), p90: sofar + float64(q.P90)})
	}
}
