package chunk

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTheBestAlternativeIsChosen compares the alternatives that people are told with the choice,
// and with looking at every chunk.
func TestTheBestAlternativeIsChosen(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ns := drawNodes(r)
		for i := range ns {
			for j := range ns[i].Residents {
				ns[i].Residents[j].Worth = rapid.Uint64Range(0, 3).Draw(r, "worth")
			}
			slices.SortFunc(ns[i].Residents, Resident.Compare)
		}
		v := Variant(rapid.IntRange(1, 5).Draw(r, "variant"))
		w := Request{Variant: v, Level: variantLevel(v), Bytes: variantBytes(v), Awaited: make([]int32, 6)}
		all := Alternatives(ns, w)
		d, ok := Choose(ns, w)
		if ok != (len(all) > 0) {
			r.Fatalf("chose %+v, %v, of %+v", d, ok, all)
		}
		if ok && !d.Hit && (all[0].Node != d.Node || all[0].Chunk != d.Chunk || len(all[0].Evict) != len(d.Evict)) {
			r.Fatalf("chose %+v, the best alternative is %+v", d, all[0])
		}
		var want, got []string
		for _, o := range options(ns, w) {
			want = append(want, fmt.Sprint(o.d.Node, o.d.Chunk))
		}
		for i, a := range all {
			got = append(got, fmt.Sprint(a.Node, a.Chunk))
			if i > 0 && a.Cost < all[i-1].Cost {
				r.Fatalf("%+v is behind %+v", a, all[i-1])
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			r.Fatalf("alternatives %v, there are %v", got, want)
		}
	})
}
