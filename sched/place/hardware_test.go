package place_test

import (
	"math"
	"slices"
	"testing"

	"rota/sched/place"
)

// Two classes as in RollArt (Table 2, §3.1): one with much compute, and one with much bandwidth
// at a third of the price.
var (
	compute   = place.Hardware{Name: "h800", PrefillNS: 20_000_000, TokenNS: 12_000_000, Batch: 16, Cost: 300}
	bandwidth = place.Hardware{Name: "h20", PrefillNS: 120_000_000, TokenNS: 11_000_000, Batch: 16, Cost: 100}
	unknown   = place.Hardware{Name: "new", Cost: 50}

	manyTurns = place.Tokens{Prefilled: 30_000, Generated: 600}
	reasoning = place.Tokens{Prefilled: 500, Generated: 20_000}
)

func TestPrefillHeavy(t *testing.T) {
	for _, h := range []place.Hardware{compute, bandwidth} {
		if !manyTurns.PrefillHeavy(h) || reasoning.PrefillHeavy(h) || (place.Tokens{}).PrefillHeavy(h) {
			t.Errorf("on %s many turns must be prefill-heavy and reasoning must not", h.Name)
		}
	}
}

func TestPreferHardware(t *testing.T) {
	kinds := []place.Hardware{unknown, bandwidth, compute}
	for _, c := range []struct {
		what    string
		wanted  []string
		tokens  place.Tokens
		costPPM uint64
		want    []string
	}{
		{"as wanted, and the rest as a fallback", []string{"h800", "h20"}, reasoning, 0, []string{"h800", "h20", "new"}},
		{"wanted although nothing was measured", []string{"gone", "new"}, reasoning, 0, []string{"new", "h20", "h800"}},
		{"the first of a name that is there twice", []string{"h20", "h800", "h20"}, manyTurns, 0, []string{"h20", "h800", "new"}},
		{"prefill-heavy", nil, manyTurns, 0, []string{"h800", "h20", "new"}},
		{"decode-heavy", nil, reasoning, 0, []string{"h20", "h800", "new"}},
		{"prefill-heavy, by time and cost", nil, manyTurns, 1_000_000, []string{"h800", "h20", "new"}},
		{"both, by time", nil, place.Tokens{Prefilled: 2000, Generated: 1000}, 0, []string{"h800", "h20", "new"}},
		{"both, by time and cost", nil, place.Tokens{Prefilled: 2000, Generated: 1000}, 1_000_000, []string{"h20", "h800", "new"}},
		{"no tokens yet: the cheapest that was measured", nil, place.Tokens{}, 0, []string{"h20", "h800", "new"}},
		{"a weight above all bounds is the highest", nil, manyTurns, math.MaxUint64, []string{"h800", "h20", "new"}},
		{"tokens beyond all bounds", nil, place.Tokens{Prefilled: math.MaxUint64, Generated: math.MaxUint64}, 500_000, []string{"h20", "h800", "new"}},
	} {
		var got []string
		for _, i := range place.PreferHardware(kinds, c.wanted, c.tokens, c.costPPM) {
			got = append(got, kinds[i].Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if got := place.PreferHardware(nil, []string{"h20"}, reasoning, 0); len(got) != 0 {
		t.Errorf("no hardware: %v", got)
	}
}
