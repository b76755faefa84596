package chart

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinesAreWellFormed: a drawing is XML whatever is in it, has all names, and is the
// same each time.
func TestLinesAreWellFormed(t *testing.T) {
	lines := []Line{
		{Name: "a<b", Points: []XY{{X: 0.01, Y: 0}, {X: 3, Y: 50}}},
		{Name: "steps", Points: []XY{{X: 0.01, Y: 10}, {X: 2, Y: 100}}, Steps: true},
		{Name: "nothing"},
	}
	for _, logX := range []bool{false, true} {
		var drawn [2][]byte
		for i := range drawn {
			file, err := Lines(filepath.Join(t.TempDir(), "new"), "x.svg", Axes{Title: "one & two", X: "x", Y: "y", LogX: logX}, lines)
			if err != nil {
				t.Fatal(err)
			}
			if drawn[i], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		if err := xml.Unmarshal(drawn[0], new(struct{})); err != nil || !bytes.Equal(drawn[0], drawn[1]) {
			t.Errorf("%v in\n%s\nor\n%s", err, drawn[0], drawn[1])
		}
		for _, want := range []string{"a&lt;b", "steps", "one &amp; two"} {
			if !strings.Contains(string(drawn[0]), want) {
				t.Errorf("%s is missing in\n%s", want, drawn[0])
			}
		}
		if decade := strings.Contains(string(drawn[0]), ">0.1<"); decade != logX {
			t.Errorf("a decade: %t, want %t, in\n%s", decade, logX, drawn[0])
		}
	}
}
