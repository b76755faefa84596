package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rota/agent/tier"
)

// A pattern that takes long to compare does not hold a connection up: SCAN answers with fewer keys,
// and goes on with the next call.
func TestAPatternThatTakesLong(t *testing.T) {
	store, err := tier.Open(tier.Options{MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var want []string
	for i := range 100 {
		key := strings.Repeat("a", 2000) + fmt.Sprint(i)
		if i%10 == 7 {
			want = append(want, key)
		}
		v, err := store.NewValue(1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Set(key, v, time.Time{}, tier.Always); err != nil {
			t.Fatal(err)
		}
	}
	p := compile("*" + strings.Repeat("a", 900) + "?7")
	keys, next := matchingKeys(store, 0, p, scanMax)
	if next == 0 {
		t.Error("all keys were compared at once")
	}
	for calls := 0; next != 0; calls++ {
		var more []string
		if more, next = matchingKeys(store, next, p, scanMax); calls > 100 {
			t.Fatal("it does not end")
		}
		keys = append(keys, more...)
	}
	if !slices.Equal(keys, want) {
		t.Errorf("%d keys match, want %d", len(keys), len(want))
	}
}
