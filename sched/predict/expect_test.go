package predict

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

func TestDistanceIsTheSumOfDifferences(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 8, 8)
		a, b := bytes.Draw(r, "a"), bytes.Draw(r, "b")
		want := 0
		for i := range a {
			want += max(int(a[i]), int(b[i])) - min(int(a[i]), int(b[i]))
		}
		if got := distance(binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)); got != want {
			r.Fatalf("the distance of %d and %d is %d, must be %d", a, b, got, want)
		}
	})
}
