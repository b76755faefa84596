package chart

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSVGIsWellFormed: every line is drawn, corners of the data are corners of the
// drawing, and names cannot break it.
func TestSVGIsWellFormed(t *testing.T) {
	lines := []Line{{Name: "a<b", Points: [][2]float64{{1, 0}, {3, 50}}}, {Name: "c", Points: [][2]float64{{1, 10}, {2, 100}}, Steps: true}}
	text := SVG(Axes{Title: "one & two", X: "x", Y: "y"}, lines)
	if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
		t.Fatal(err, text)
	}
	for _, want := range []string{`points="60.0,352.0 530.0,194.0"`, `points="60.0,320.4 295.0,320.4 295.0,36.0"`, "a&lt;b", "one &amp; two"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if logarithmic := SVG(Axes{LogX: true}, []Line{{Points: [][2]float64{{0.01, 1}, {1, 2}}}}); !strings.Contains(logarithmic, ">0.1<") {
		t.Errorf("no decade in\n%s", logarithmic)
	}
	file, err := WriteSVG(filepath.Join(t.TempDir(), "new"), "x.svg", Axes{}, lines)
	if b, e := os.ReadFile(file); err != nil || e != nil || !strings.HasPrefix(string(b), "<svg ") {
		t.Error(err, e)
	}
}
