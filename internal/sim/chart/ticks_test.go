package chart

import (
	"image/png"
	"os"
	"slices"
	"strings"
	"testing"

	"rota/internal/sim/evaluate"
)

// TestDecadesHaveLabels: an axis of decades says where it is, however little it spans.
func TestDecadesHaveLabels(t *testing.T) {
	for _, c := range []struct {
		least, most float64
		want        string
	}{
		{0.4, 30, "0.5 1 2 5 10 20"},
		{1, 1000, "1 2 5 10 20 50 100 200 500 1000"},
		{0.0005, 20, "0.001 0.01 0.1 1 10"},
		{1.5, 9, "2 5"},
	} {
		var got []string
		for _, tick := range (decades{}).Ticks(c.least, c.most) {
			if tick.Value < c.least || tick.Value > c.most {
				t.Errorf("%v to %v: a tick at %v", c.least, c.most, tick.Value)
			}
			if tick.Label != "" {
				got = append(got, tick.Label)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%v to %v: %s, want %s", c.least, c.most, text, c.want)
		}
	}
	labels := 0
	for _, tick := range (decades{}).Ticks(3.1, 4.4) { // has no 1, 2 or 5
		if tick.Label != "" {
			labels++
		}
	}
	if labels < 2 {
		t.Errorf("%d labels from 3.1 to 4.4", labels)
	}
}

// TestTheLegendIsBesideTheData: a longer name makes the drawing wider, and the data stays.
func TestTheLegendIsBesideTheData(t *testing.T) {
	wide := func(name string) int {
		points := []XY{{X: 1, Y: 1}, {X: 2, Y: 1}}
		file, err := Lines(t.TempDir(), "x.png", Axes{Title: "t", X: "x", Y: "y", LogX: true}, []Line{{Name: name, Points: points}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := png.DecodeConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		return c.Width
	}
	short, long := wide("a"), wide("a policy with a long name")
	data := width.Dots(dpi)
	if short <= int(data) || long <= short+100 {
		t.Errorf("%d and %d pixels for %.0f of data", short, long, data)
	}
}

// TestEmptyAndEqualValuesAreDrawn on logarithmic axes, which know no 0.
func TestEmptyAndEqualValuesAreDrawn(t *testing.T) {
	for _, points := range [][]XY{nil, {{X: 1, Y: 1}}, {{X: 0, Y: 1}, {X: 2, Y: 1}}} {
		if _, err := Lines(t.TempDir(), "x.svg", Axes{LogX: true}, []Line{{Name: "a", Points: points}}); err != nil {
			t.Errorf("%v: %v", points, err)
		}
	}
}

func TestValuesOfASweepHaveNamesOrPlaces(t *testing.T) {
	for text, want := range map[string][]float64{"0.5 2": {0.5, 2}, "fast slow": {0, 1}, "1 slow 3": {0, 1, 2}} {
		var points []evaluate.Point
		for value := range strings.FieldsSeq(text) {
			points = append(points, evaluate.Point{Value: value})
		}
		xs, names := places(points)
		if !slices.Equal(xs, want) || len(names) > 0 != strings.Contains(text, "slow") {
			t.Errorf("%s: %v %q", text, xs, names)
		}
	}
}
