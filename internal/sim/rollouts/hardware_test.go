package rollouts

import (
	"errors"
	"testing"
)

// TestHardwareIsChosenByMeasuredTokens: without tags, trajectories that are dominated by prompts
// go to the hardware that computes, once that was measured, and they end earlier for it.
func TestHardwareIsChosenByMeasuredTokens(t *testing.T) {
	s, h := Default(), DefaultHardware()
	s.Model, s.Steps, h.Batch = "8b", 2, 128
	all, err := CompareHardware(t.Context(), s, h, 1)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*HardwareResult{}
	for _, r := range all {
		by[r.Name] = r
		if n := len(r.Last); n != 1 || r.Last[0].OutputTokens == 0 {
			t.Errorf("%s has %d steps: %+v", r.Name, n, r.Last)
		}
	}
	measured, blind := by["measured"], by["least-load"]
	if measured.GamesOnCompute < 90 || measured.MathOnCompute > measured.GamesOnCompute-20 {
		t.Errorf("of games %d %% and of math %d %% are on the kind that computes", measured.GamesOnCompute, measured.MathOnCompute)
	}
	if a, b := measured.Last[0].CompletionMeanNS, blind.Last[0].CompletionMeanNS; a >= b {
		t.Errorf("trajectories end after %d ns on average, without measured tokens after %d", a, b)
	}
	again, err := CompareHardware(t.Context(), s, h, 1)
	if err != nil || again[0].Last[0].MakespanNS != all[0].Last[0].MakespanNS {
		t.Errorf("a second run differs: %v", err)
	}
}

func TestHardwareSetups(t *testing.T) {
	for _, change := range []func(h *Hardware){
		func(h *Hardware) { h.Compute = 0 }, func(h *Hardware) { h.BandwidthOnly = 257 }, func(h *Hardware) { h.GamePercent = 101 }, func(h *Hardware) { h.Batch = 1 },
	} {
		h := DefaultHardware()
		change(&h)
		if _, err := CompareHardware(t.Context(), Default(), h, 1); !errors.Is(err, ErrSetup) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}
