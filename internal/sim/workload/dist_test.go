package workload

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func dist(t testing.TB, text string) Dist {
	t.Helper()
	var d Dist
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

func TestExpIsTheExponential(t *testing.T) {
	for x := uint64(0); x <= 13*million; x += 12_347 {
		got, want := float64(exp(x))/one, math.Exp(float64(x)/million)
		if math.Abs(got/want-1) > 3e-9 {
			t.Fatalf("exp(%d) is %.12g, want %.12g", x, got, want)
		}
	}
}

func TestNormalQuantiles(t *testing.T) {
	for _, q := range normal {
		p, want := float64(q.p)/certain, float64(q.z)/million
		if got := math.Sqrt2 * math.Erfinv(2*p-1); math.Abs(got-want) > 2e-5*(1+got*got*math.Exp(got*got/2)/1000) {
			t.Errorf("quantile %.9f is %.6f, the table has %.6f", p, got, want)
		}
	}
}

func TestDistributions(t *testing.T) {
	const half = 1 << 63
	for _, c := range []struct {
		text                      string
		least, median, most, mean int64
	}{
		{`{"fixed": "2s"}`, 2e9, 2e9, 2e9, 2e9},
		{`{"uniform": [30, 50]}`, 30, 40, 50, 40},
		{`{"quantiles": [[0, 0], [500000, 10], [1000000, 1000]]}`, 0, 10, 1000, 255},
		{`{"quantiles": [[0, "4GiB"], [1000000, "4GiB"]]}`, 4 << 30, 4 << 30, 4 << 30, 4 << 30},
	} {
		d := dist(t, c.text)
		got := [4]int64{d.At(0), d.At(half), d.At(math.MaxUint64), d.Mean()}
		if want := [4]int64{c.least, c.median, c.most, c.mean}; got != want {
			t.Errorf("%s: least, median, most and mean are %d, want %d", c.text, got, want)
		}
		if d.Min() != c.least || d.Max() != c.most {
			t.Errorf("%s: from %d to %d", c.text, d.Min(), d.Max())
		}
	}
}

func TestLogNormalHasItsMeanAndItsMedian(t *testing.T) {
	d := dist(t, `{"lognormal": {"mean": "88s", "sigma_ppm": 1000000, "min": "1ms", "max": "100h"}}`)
	if mean := d.Mean(); mean < 88e9 || mean > 88e9+1000 {
		t.Errorf("mean %d", mean)
	}
	// The median of the real one is mean / e^(sigma^2/2) = 53.4 s; straight lines
	// between quantiles lie a little above the curve.
	if median := float64(d.At(1<<63)) / 1e9; math.Abs(median-53.4) > 0.6 {
		t.Errorf("median %.2f s", median)
	}
	if p99 := float64(d.At(math.MaxUint64/100*99)) / 1e9; math.Abs(p99/(53.4*math.Exp(2.3263))-1) > 0.02 {
		t.Errorf("99th percentile %.1f s", p99)
	}
	sum, n := 0.0, 200_000
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		sum += float64(d.At(r.Uint64()))
	}
	if mean := sum / float64(n) / 1e9; math.Abs(mean-88) > 1 {
		t.Errorf("mean of draws %.2f s", mean)
	}
}

func TestDrawsFollowTheQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table [][2]Quantity
		p, v := int64(0), rapid.Int64Range(0, 1<<20).Draw(t, "least")
		for p < million {
			table = append(table, [2]Quantity{Quantity(p), Quantity(v)})
			p += rapid.Int64Range(1, million).Draw(t, "ppm")
			v += rapid.Int64Range(0, 1<<50).Draw(t, "rise")
			v = min(v, quantityMax)
		}
		table = append(table, [2]Quantity{million, Quantity(v)})
		d, err := quantiles(table)
		if err != nil {
			t.Fatal(err)
		}
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		if a > b {
			a, b = b, a
		}
		x, y := d.At(a), d.At(b)
		if x > y || x < d.Min() || y > d.Max() {
			t.Fatalf("draws %d and %d of %v", x, y, table)
		}
		if m := d.Mean(); m > d.Max() || m+int64(len(table)) < d.Min() {
			t.Fatalf("mean %d of %v", m, table)
		}
	})
}

func TestBadDistributionsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                            "write one of",
		`{"fixed": 1, "uniform": [1, 2]}`:               "write one of",
		`{"uniform": [1]}`:                              "write one of",
		`{"uniform": [2, 1]}`:                           "not above",
		`{"fixed": -1}`:                                 "not between",
		`{"fixed": 1.5}`:                                "neither",
		`{"fixed": "1 apple"}`:                          "neither",
		`{"fixed": "xGiB"}`:                             "not a decimal",
		`{"fixed": "99999999TiB"}`:                      "too large",
		`{"normal": 1}`:                                 "unknown field",
		`{"quantiles": [[0, 1]]}`:                       "go from 0",
		`{"quantiles": [[0, 1], [500000, 2]]}`:          "go from 0",
		`{"quantiles": [[0, 2], [1000000, 1]]}`:         "not above",
		`{"quantiles": [[0, 1], [0, 2], [1000000, 3]]}`: "not above",
		`{"lognormal": {"mean": 1, "sigma_ppm": 1, "min": 1, "max": 2}}`:       "min < mean < max",
		`{"lognormal": {"mean": 5, "sigma_ppm": 9000000, "min": 1, "max": 9}}`: "is above",
	} {
		var d Dist
		if err := json.Unmarshal([]byte(text), &d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestCurves(t *testing.T) {
	amdahl := Curve{SerialPPM: 200_000}
	table := Curve{Ratio: []Ratio{{1, million}, {2, 900_000}, {4, 750_000}}}
	for _, c := range []struct {
		curve              Curve
		units, want, ratio int64
	}{
		{amdahl, 1, 1000, million}, {amdahl, 2, 600, 833_333}, {amdahl, 8, 300, 416_666},
		{Curve{}, 4, 250, million}, {Curve{SerialPPM: million}, 4, 1000, 250_000},
		{table, 1, 1000, million}, {table, 2, 555, 900_000}, {table, 3, 555, 600_000}, {table, 4, 333, 750_000}, {table, 8, 333, 375_000},
	} {
		if got := c.curve.Duration(1000, c.units); got != c.want {
			t.Errorf("%+v with %d units: %d, want %d", c.curve, c.units, got, c.want)
		}
		if got := c.curve.PPM(c.units); got < c.ratio-1 || got > c.ratio+1 {
			t.Errorf("%+v: E(%d) is %d, want %d", c.curve, c.units, got, c.ratio)
		}
	}
}

func TestMoreUnitsNeverTakeLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Curve{SerialPPM: rapid.Int64Range(0, million).Draw(t, "serial")}
		single := rapid.Int64Range(1, durationMax).Draw(t, "single")
		m := rapid.Int64Range(1, 4096).Draw(t, "units")
		a, b := c.Duration(single, m), c.Duration(single, m+1)
		if b > a || a > single || b < 1 {
			t.Fatalf("%d units take %d, one more %d, one %d", m, a, b, single)
		}
		if e := c.PPM(m); e < 1 || e > million {
			t.Fatalf("E(%d) is %d", m, e)
		}
	})
}
