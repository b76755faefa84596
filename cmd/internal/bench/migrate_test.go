package bench

import (
	"testing"
	"time"
)

// Half is there, so half is moved, and the copy has as much.
func TestMigrate(t *testing.T) {
	turns := map[string]int{}
	r, err := Migrate(t.Context(), MigrateOptions{Dir: t.TempDir(), Bytes: 4 << 20, ValueBytes: 64 << 10, PresentPercent: 50, Rounds: 1},
		func(_ int, what string, took time.Duration) {
			if turns[what]++; took <= 0 {
				t.Errorf("%s took %v", what, took)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != 4<<20 || r.MovedBytes != 2<<20 || r.PresentBytes != 2<<20 || r.Rounds != 1 || turns["migration"] != 1 || turns["copy"] != 1 {
		t.Errorf("%+v, %v", r, turns)
	}
	if r.MigrationMS <= 0 || r.CopyMS <= 0 || r.CopyAllMS < 1.9*r.CopyMS || r.Speed.Min > r.Speed.Median || r.Speed.Median > r.Speed.Max {
		t.Errorf("%+v", r)
	}
}
