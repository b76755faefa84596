package spin

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestNoise(t *testing.T) {
	for name, tc := range map[string]struct {
		samples []time.Duration
		want    Noise
	}{
		"none":    {nil, Noise{}},
		"one":     {[]time.Duration{2 * time.Second}, Noise{1, 2000, 0, 1}},
		"equal":   {[]time.Duration{time.Second, time.Second}, Noise{2, 1000, 0, 1}},
		"unequal": {[]time.Duration{time.Second, 3 * time.Second}, Noise{2, 2000, math.Sqrt2 / 2, 3}},
	} {
		m := Meter{samples: tc.samples}
		got := m.Noise()
		if math.Abs(got.CV-tc.want.CV) > 1e-9 {
			t.Errorf("%s: CV %f, want %f", name, got.CV, tc.want.CV)
		}
		got.CV = tc.want.CV
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	said := Noise{Samples: 4, MeanMS: 101.6, CV: 0.034, Slowest: 1.26}.String()
	if !strings.Contains(said, "102 ms") || !strings.Contains(said, "3 %") || !strings.Contains(said, "1.3 times") {
		t.Error(said)
	}
}

// A sample is work: more of it than a unit on each CPU, however fast they are.
func TestSampleTakesTime(t *testing.T) {
	unit := UnitTime()
	if unit < 100*time.Microsecond {
		t.Fatalf("a unit takes %v: the work is not done", unit)
	}
	m := NewMeter()
	m.Sample()
	if n := m.Noise(); len(m.workers) != runtime.NumCPU() || n.Samples != 1 || n.MeanMS < ms(unit) {
		t.Errorf("a sample of %d workers is %+v; a unit takes %v", len(m.workers), n, unit)
	}
}

func ms(d time.Duration) float64 { return 1000 * d.Seconds() }
