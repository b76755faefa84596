package state

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world is a set and a dict as those of a state, and what they must have.
type world struct {
	set  set[int]
	dict dict[int, int]
	want map[int]int
}

// copy does what State.Copy does.
func (w *world) copy() *world {
	w.set.shared, w.dict.shared = true, true
	c := *w
	c.want = maps.Clone(w.want)
	return &c
}

func (w *world) check(t *rapid.T, who int) {
	got := map[int]int{}
	w.dict.Scan(func(k, v int) bool {
		got[k] = v
		return true
	})
	var items []int
	w.set.Scan(func(k int) bool {
		items = append(items, k)
		return true
	})
	if !maps.Equal(got, w.want) || !slices.Equal(items, slices.Sorted(maps.Keys(w.want))) || w.dict.Len() != len(w.want) || w.set.Len() != len(w.want) {
		t.Fatalf("copy %d has %v and %v, want %v", who, got, items, w.want)
	}
}

// TestCopiesShareNoWrites: whichever of many copies of copies is written to, in whatever order, only that
// one changes.
func TestCopiesShareNoWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []*world{{set: newSet(func(a, b int) bool { return a < b }), dict: newDict[int, int](), want: map[int]int{}}}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			w := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			k, v := rapid.IntRange(0, 300).Draw(t, "key"), rapid.IntRange(0, 9).Draw(t, "value")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if len(all) < 6 {
					all = append(all, w.copy())
				}
			case 1, 2, 3:
				old, had := w.dict.Delete(k)
				if was, there := w.want[k]; had != there || old != was {
					t.Fatalf("deleting %d gave %d, %v; want %d, %v", k, old, had, was, there)
				}
				w.set.Delete(k)
				delete(w.want, k)
			default:
				w.dict.Set(k, v)
				w.set.Set(k)
				w.want[k] = v
			}
		}
		for i, w := range all {
			w.check(t, i)
		}
	})
}

// BenchmarkCopy is what an entry pays before it changes anything.
func BenchmarkCopy(b *testing.B) {
	b.ReportAllocs()
	s := New()
	for b.Loop() {
		s = s.Copy()
	}
}
