package bench

import (
	"testing"
	"time"

	"rota/cmd/internal/rotatest"
)

// Both ways of copying files, and the bare copy, take turns.
func TestFiles(t *testing.T) {
	turns := map[string]int{}
	o := FilesOptions{Cluster: ClusterOptions{Binary: rotatest.Binary(t)}, Bytes: 3<<20 + 17, Files: 3, Rounds: 1}
	r, err := Files(t.Context(), o, func(_ int, way string, took time.Duration) {
		if turns[way]++; took <= 0 {
			t.Errorf("%s took %v", way, took)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Figures) != 5 || len(turns) != 5 || turns[BareCopy] != 1 || turns["download, 3 files"] != 1 {
		t.Errorf("%+v, %v", r, turns)
	}
	for _, f := range r.Figures {
		if f.MS <= 0 || f.Speed.Median <= 0 || f.Way == BareCopy && f.Speed.Median != 1 {
			t.Errorf("%+v", f)
		}
	}
}
