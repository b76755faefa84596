package rpc

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// Sums are exact, however long they are, up to the longest duration of a message.
func TestTotalsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum total
		want := new(big.Int)
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			ns := rapid.Int64Range(0, math.MaxInt64).Draw(t, "ns")
			times := rapid.Uint64Range(0, 512).Draw(t, "times")
			sum.add(ns, times)
			want.Add(want, new(big.Int).Mul(big.NewInt(ns), new(big.Int).SetUint64(times)))
		}
		m := sum.message()
		got := new(big.Int).Mul(big.NewInt(m.Seconds), big.NewInt(nsPerSecond))
		got.Add(got, big.NewInt(int64(m.Nanos)))
		if most := new(big.Int).Mul(big.NewInt(totalSecondsMax), big.NewInt(nsPerSecond)); want.Cmp(most) > 0 {
			want = most
		}
		if got.Cmp(want) != 0 || m.CheckValid() != nil {
			t.Fatalf("the sum is %v, want %v", got, want)
		}
	})
}

func TestTotalsStopAtTheLimit(t *testing.T) {
	var sum total
	sum.add(-5, 3)
	if sum != (total{}) {
		t.Errorf("a negative time adds %v", sum)
	}
	sum.add(math.MaxInt64, math.MaxUint64)
	sum.add(1, 1)
	sum.join(total{seconds: math.MaxUint64})
	if m := sum.message(); m.Seconds != totalSecondsMax || m.Nanos != 0 || m.CheckValid() != nil {
		t.Errorf("beyond the limit the sum is %v", m)
	}
}
