package order

import (
	"cmp"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestNextTurn(t *testing.T) {
	const s = 1_000_000_000
	running := &Turn{ID: 1, Deployment: 1, Arrival: 90 * s, Exec: 10 * s, SetUp: 5 * s}
	for _, c := range []struct {
		name string
		g    Input
		want int
	}{
		{"nobody", Input{}, -1},
		{"the only one", Input{Waiting: []Turn{{ID: 7, Exec: s}}}, 0},
		{"who has waited longest, of equals", Input{Now: 9 * s, Waiting: []Turn{{ID: 1, Deployment: 1, Arrival: 3 * s, Exec: s}, {ID: 2, Deployment: 2, Arrival: 2 * s, Exec: s}}}, 1},
		{"the shorter, of those that came together", Input{Now: 9 * s, Waiting: []Turn{{ID: 1, Deployment: 1, Exec: 2 * s}, {ID: 2, Deployment: 2, Exec: s}}}, 1},
		{"the resident's, that needs no set-up", Input{Now: 9 * s, Resident: 2, Waiting: []Turn{{ID: 1, Deployment: 1, Exec: s, SetUp: s}, {ID: 2, Deployment: 2, Exec: s, SetUp: s}}}, 1},
		{"another's, that has waited for longer", Input{Now: 9 * s, Resident: 2, Waiting: []Turn{{ID: 1, Deployment: 1, Exec: s, SetUp: s}, {ID: 2, Deployment: 2, Arrival: 5 * s, Exec: s, SetUp: s}}}, 0},
		{"just arrived, the resident's", Input{Now: 9 * s, Resident: 2, Waiting: []Turn{{ID: 1, Deployment: 1, Arrival: 9 * s, Exec: s}, {ID: 2, Deployment: 2, Arrival: 9 * s, Exec: 3 * s}}}, 1},
		{"in order within a deployment", Input{Now: 9 * s, Waiting: []Turn{{ID: 1, Deployment: 1, Arrival: 5 * s, Exec: 50 * s}, {ID: 2, Deployment: 1, Arrival: 6 * s, Exec: 1}}}, 0},
		{"a turn that may not be stopped", Input{Now: 100 * s, Running: running, Waiting: []Turn{{ID: 2, Deployment: 2, Exec: 1}}}, -1},
		{"a turn that may", Input{Now: 100 * s, Running: running, Preemptible: true, Waiting: []Turn{{ID: 2, Deployment: 2, Exec: 1}}}, 0},
		{"for no better reason", Input{Now: 100 * s, Running: running, Preemptible: true, Waiting: []Turn{{ID: 2, Deployment: 2, Arrival: 90 * s, Exec: 10 * s}}}, -1},
		{"nor for its own deployment", Input{Now: 100 * s, Running: running, Preemptible: true, Waiting: []Turn{{ID: 2, Deployment: 1, Exec: 1}}}, -1},
		{"one that overstays is about to end", Input{Now: 100 * s, Running: &Turn{ID: 1, Deployment: 1, Arrival: 90 * s, Exec: -s}, Preemptible: true, Waiting: []Turn{{ID: 2, Deployment: 2, Exec: s}}}, -1},
		{"ratios that need 128 bits", Input{Now: math.MaxInt64, Waiting: []Turn{{ID: 1, Deployment: 1, Exec: math.MaxInt64 - 1}, {ID: 2, Deployment: 2, Arrival: 1, Exec: math.MaxInt64 - 3}}}, 1},
		{"set-up that overflows", Input{Now: 9, Waiting: []Turn{{ID: 1, Deployment: 1, Exec: math.MaxInt64, SetUp: math.MaxInt64}, {ID: 2, Deployment: 2, Exec: 5}}}, 1},
	} {
		var h HRRS
		if got := h.Next(&c.g); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func drawGroup(r *rapid.T) *Input {
	most := rapid.SampledFrom([]int64{5, 100, math.MaxInt64 / 4}).Draw(r, "most")
	turn := func(id uint64) Turn {
		return Turn{
			ID:         id,
			Deployment: rapid.Uint64Range(1, 4).Draw(r, "deployment"),
			Arrival:    rapid.Int64Range(0, most).Draw(r, "arrival"),
			Exec:       rapid.Int64Range(0, most).Draw(r, "exec"),
			SetUp:      rapid.Int64Range(0, most).Draw(r, "set-up"),
		}
	}
	g := &Input{Now: most, Resident: rapid.Uint64Range(0, 4).Draw(r, "resident")}
	if rapid.Bool().Draw(r, "running") {
		t := turn(100)
		g.Running, g.Resident = &t, t.Deployment
		g.Preemptible = rapid.Bool().Draw(r, "preemptible")
	}
	for i := range rapid.Uint64Range(0, 9).Draw(r, "waiting") {
		g.Waiting = append(g.Waiting, turn(i+1))
	}
	return g
}

// ratio is equation 4 as it is printed, but with a service time of at least 1.
func (g *Input) ratio(t *Turn) *big.Rat {
	s := big.NewInt(t.Exec)
	if t.Deployment != g.Resident {
		s.Add(s, big.NewInt(t.SetUp))
	}
	if s.Sign() == 0 {
		s.SetInt64(1)
	}
	w := big.NewInt(g.Now - t.Arrival)
	return new(big.Rat).SetFrac(w.Add(w, s), s)
}

// literal is the turn that should have the group now, by exact ratios; 0 if there is none.
func (g *Input) literal() uint64 {
	if g.Running != nil && !g.Preemptible {
		return g.Running.ID
	}
	var heads []Turn
	if g.Running != nil {
		heads = append(heads, *g.Running)
	}
	for _, t := range g.Waiting {
		if !slices.ContainsFunc(heads, func(o Turn) bool { return o.Deployment == t.Deployment }) {
			heads = append(heads, t)
		}
	}
	if len(heads) == 0 {
		return 0
	}
	return slices.MinFunc(heads, func(a, b Turn) int {
		tie := func(is func(Turn) bool) int { return first(is(a), is(b)) }
		return cmp.Or(g.ratio(&b).Cmp(g.ratio(&a)),
			tie(func(t Turn) bool { return t.ID == 100 }),
			tie(func(t Turn) bool { return t.Deployment == g.Resident }),
			cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.ID, b.ID))
	}).ID
}

// TestHRRSIsLiteral compares with exact ratios. The turns are granted one after the
// other, so that the whole order is compared.
func TestHRRSIsLiteral(t *testing.T) {
	var h HRRS
	rapid.Check(t, func(r *rapid.T) {
		g := drawGroup(r)
		for {
			want, got := g.literal(), uint64(0)
			i := h.Next(g)
			switch {
			case i >= 0:
				got = g.Waiting[i].ID
			case g.Running != nil:
				got = g.Running.ID
			}
			if got != want {
				r.Fatalf("%d has the group next, want %d", got, want)
			}
			if got == 0 {
				return
			}
			if i >= 0 {
				g.Waiting = slices.Delete(g.Waiting, i, i+1)
			} else {
				g.Running = nil
			}
		}
	})
}

// TestRatioGrowsWithoutBound: whatever the service times, a turn that waits gets ahead
// of any that comes later.
func TestRatioGrowsWithoutBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		long := Turn{ID: 1, Deployment: 1, Exec: rapid.Int64Range(1, 1<<40).Draw(r, "exec"), SetUp: rapid.Int64Range(0, 1<<40).Draw(r, "set-up")}
		short := Turn{ID: 2, Deployment: 2, Exec: rapid.Int64Range(1, 1000).Draw(r, "short"), Arrival: rapid.Int64Range(1, 1<<40).Draw(r, "arrival")}
		waited := rapid.Int64Range(0, 1000).Draw(r, "waited")
		// From when on the long one is ahead of what has waited so little.
		from := (long.Exec+long.SetUp)*waited/short.Exec + 1
		g := Input{Now: from}
		short.Arrival = g.Now - waited
		g.Waiting = []Turn{short, long}
		var h HRRS
		if h.Next(&g) != 1 {
			r.Fatalf("after %d, %+v still goes before %+v", from, short, long)
		}
	})
}

// waitBound is the longest that a turn can wait if n deployments have one turn each,
// and take from least to most. While it waits for u, another one is served only if it
// has waited for rho*u at least, rho being least/most. So between two of its turns u
// grows by a factor of 1/(1-rho), and there are at most 2 + log(u/least)/-log(1-rho)
// of them. The group is never idle, so u is at most what they take together.
func waitBound(n int, least, most float64) float64 {
	rho := least / most
	u := most
	for range 1000 {
		turns := 2 + max(0, math.Log(u/least))/-math.Log1p(-rho)
		u = float64(n) * most * turns
	}
	return u
}

// TestNothingStarves has deployments that come back as soon as they have been served,
// some with short turns and some with long ones: each waits for a bounded time.
func TestNothingStarves(t *testing.T) {
	var h HRRS
	worst := 0.0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(8)
		var waiting []Turn
		exec := make([]int64, n)
		for d := range n {
			exec[d] = 1 + rng.Int64N(1000)
			waiting = append(waiting, Turn{ID: uint64(d + 1), Deployment: uint64(d + 1), Exec: exec[d], SetUp: rng.Int64N(50)})
		}
		bound := waitBound(n, float64(slices.Min(exec)), float64(slices.Max(exec)+50))
		g := Input{Waiting: waiting}
		for range 5000 {
			i := h.Next(&g)
			turn := &g.Waiting[i]
			waited := float64(g.wait(turn))
			if worst = max(worst, waited/bound); waited > bound {
				t.Fatalf("%+v waited for %v, the bound is %v", turn, waited, bound)
			}
			g.Now += g.service(turn)
			g.Resident = turn.Deployment
			turn.Arrival = g.Now
		}
	}
	t.Logf("the longest wait was %.0f %% of the bound", 100*worst)
}

func BenchmarkHRRS(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	g := Input{Now: 1 << 50, Resident: 3}
	for i := range uint64(64) {
		g.Waiting = append(g.Waiting, Turn{i + 1, i%16 + 1, rng.Int64N(1 << 50), rng.Int64N(1 << 36), rng.Int64N(1 << 34)})
	}
	var h HRRS
	b.Run("next/16-deployments/64-turns", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Next(&g)
		}
	})
}
