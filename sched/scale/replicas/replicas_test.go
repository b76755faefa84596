package replicas

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	base := Load{Min: 0, Max: 20, Concurrency: 4, Now: 100, IdleNS: 50}
	for name, c := range map[string]struct {
		change func(*Load)
		want   Decision
	}{
		"nothing to do":            {func(*Load) {}, Decision{}},
		"first call":               {func(l *Load) { l.Demand = 1 }, Decision{Wanted: 1, Start: 1}},
		"one call too many":        {func(l *Load) { l.Demand, l.Ready = 9, 2 }, Decision{Wanted: 3, Start: 1}},
		"a burst":                  {func(l *Load) { l.Demand = 1000 }, Decision{Wanted: 20, Start: 8}},
		"a burst, some start":      {func(l *Load) { l.Demand, l.Starting = 1000, 7 }, Decision{Wanted: 20, Start: 1}},
		"a burst, enough start":    {func(l *Load) { l.Demand, l.Starting = 1000, 8 }, Decision{Wanted: 20}},
		"a burst, many are ready":  {func(l *Load) { l.Demand, l.Ready = 1000, 10 }, Decision{Wanted: 20, Start: 10}},
		"kept":                     {func(l *Load) { l.Min = 3 }, Decision{Wanted: 3, Start: 3}},
		"fewer begin to be enough": {func(l *Load) { l.Demand, l.Ready = 4, 3 }, Decision{Wanted: 1, Low: true, LowSince: 100, Peak: 1}},
		"not for long enough":      {func(l *Load) { l.Ready, l.Low, l.LowSince, l.Peak = 3, true, 51, 2 }, Decision{Low: true, LowSince: 51, Peak: 2}},
		"to the peak":              {func(l *Load) { l.Ready, l.Low, l.LowSince, l.Peak = 3, true, 50, 2 }, Decision{Drain: 1, Low: true, LowSince: 100}},
		"to zero":                  {func(l *Load) { l.Ready, l.Low, l.LowSince = 3, true, 50 }, Decision{Drain: 3}},
		"the maximum was lowered":  {func(l *Load) { l.Ready, l.Max = 7, 5 }, Decision{Drain: 2, Low: true, LowSince: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			l := base
			c.change(&l)
			if got := Decide(l); got != c.want {
				t.Errorf("decided %+v, want %+v", got, c.want)
			}
		})
	}
}

// Whatever the load, replicas stay within their bounds, none is started and drained at once, and
// none that the demand needs is drained.
func TestDecisionsAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) uint32 { return uint32(rapid.IntRange(0, most).Draw(t, name)) }
		l := Load{
			Demand: rapid.Uint64().Draw(t, "demand") >> n("shift", 63), Min: n("min", 20), Concurrency: 1 + n("concurrency", 9),
			Starting: n("starting", 20), Ready: n("ready", 40), Now: int64(n("now", 1000)), IdleNS: 1 + int64(n("idle", 100)),
		}
		l.Max = max(1, l.Min+n("more", 20))
		if rapid.Bool().Draw(t, "low") {
			l.Low, l.LowSince, l.Peak = true, int64(n("since", int(l.Now))), n("peak", 60)
		}
		d := Decide(l)
		live := l.Starting + l.Ready
		switch {
		case d.Wanted < l.Min || d.Wanted > l.Max:
			t.Fatalf("%+v: wants %d", l, d.Wanted)
		case d.Start > 0 && d.Drain > 0 || d.Drain > live:
			t.Fatalf("%+v: starts %d and drains %d", l, d.Start, d.Drain)
		case d.Start > 0 && live+d.Start > d.Wanted:
			t.Fatalf("%+v: starts %d, and %d are wanted", l, d.Start, d.Wanted)
		case d.Drain > 0 && live-d.Drain < d.Wanted:
			t.Fatalf("%+v: drains %d, and %d are wanted", l, d.Drain, d.Wanted)
		case d.Wanted > live && l.Starting < startsAtOnce && d.Start == 0:
			t.Fatalf("%+v: starts none, and %d are wanted", l, d.Wanted)
		case d.Low != (live-d.Drain > d.Wanted) || !d.Low && (d.LowSince != 0 || d.Peak != 0):
			t.Fatalf("%+v: %+v", l, d)
		}
	})
}

// A function whose demand stays the same comes to what it needs, and stays there.
func TestDecisionsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) uint32 { return uint32(rapid.IntRange(0, most).Draw(t, name)) }
		l := Load{
			Demand: uint64(n("demand", 500)), Min: n("min", 5), Max: 5 + n("max", 50), Concurrency: 1 + n("concurrency", 5),
			Ready: n("ready", 60), IdleNS: 10,
		}
		want := Need(l.Demand, l.Min, l.Max, l.Concurrency)
		for range 12 { // the number at least doubles, and two idle times pass
			d := Decide(l)
			l.Ready += d.Start
			l.Ready -= d.Drain
			l.Low, l.LowSince, l.Peak = d.Low, d.LowSince, d.Peak
			l.Now += l.IdleNS
		}
		if d := Decide(l); l.Ready != want || d.Start != 0 || d.Drain != 0 {
			t.Fatalf("%d replicas in the end, %d are wanted: %+v", l.Ready, want, d)
		}
	})
}
