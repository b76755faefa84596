package partition_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
)

func TestCurve(t *testing.T) {
	two := []partition.Point{{Batch: 4, TokenNS: 100}, {Batch: 8, TokenNS: 150}}
	for _, c := range []struct {
		what   string
		points []partition.Point
		slots  int
		n      int
		want   int64
	}{
		{"fewer than the first point", two, 0, 1, 100},
		{"a point", two, 0, 4, 100},
		{"between points", two, 0, 6, 125},
		{"beyond the last, on its line", two, 0, 16, 250},
		{"as many as slots", two, 6, 6, 125},
		{"beyond the slots, in turns", two, 6, 12, 250},
		{"slots below the first point", two, 2, 4, 200},
		{"slots beyond the last point", two, 16, 32, 500},
		{"an only point, in turns", two[:1], 0, 12, 300},
		{"an only point with fewer slots", two[:1], 2, 12, 600},
		{"a point below the one before", []partition.Point{{Batch: 1, TokenNS: 50}, {Batch: 2, TokenNS: 40}}, 0, 9, 50},
		{"the longest time", two, 1, 1 << 20, 100 << 20},
		{"beyond all bounds", []partition.Point{{Batch: 1, TokenNS: partition.TokenMaxNS}}, 0, 1 << 40, partition.TokenMaxNS},
	} {
		curve, err := partition.NewCurve(c.points, c.slots)
		if err != nil {
			t.Fatal(err)
		}
		if got := curve.TokenNS(c.n); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestCurveRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		points []partition.Point
		slots  int
	}{
		"no points":        {},
		"increasing order": {points: []partition.Point{{Batch: 2, TokenNS: 1}, {Batch: 2, TokenNS: 1}}},
		"batch size 0":     {points: []partition.Point{{TokenNS: 1}}},
		"0 ns for a token": {points: []partition.Point{{Batch: 1}}},
		"-1 slots":         {points: []partition.Point{{Batch: 1, TokenNS: 1}}, slots: -1},
	} {
		if _, err := partition.NewCurve(c.points, c.slots); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestMostIsTheInverseOfTokenNS also says that no curve falls.
func TestMostIsTheInverseOfTokenNS(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []partition.Point
		batch := 0
		for range rapid.IntRange(1, 5).Draw(t, "points") {
			batch += rapid.IntRange(1, 9).Draw(t, "run")
			points = append(points, partition.Point{Batch: batch, TokenNS: rapid.Int64Range(1, 60).Draw(t, "time")})
		}
		curve, err := partition.NewCurve(points, rapid.IntRange(0, 40).Draw(t, "slots"))
		if err != nil {
			t.Fatal(err)
		}
		within := rapid.Int64Range(0, 200).Draw(t, "within")
		most := 0
		for n := 1; n <= 500; n++ {
			if curve.TokenNS(n) < curve.TokenNS(max(1, n-1)) {
				t.Fatalf("the curve falls at %d", n)
			}
			if curve.TokenNS(n) <= within {
				most = n
			}
		}
		if got := curve.Most(within); got != most && (most < 500 || got < most) {
			t.Fatalf("at most %d within %d, want %d", got, within, most)
		}
	})
}
