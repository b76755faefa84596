package worker

import (
	"fmt"
	"testing"

	"rota/fsm/state"
)

// BenchmarkChoose is the choice among as many workers as a cluster may have, of few kinds of
// hardware, and each of a kind of its own.
func BenchmarkChoose(b *testing.B) {
	for _, kinds := range []int{1, 3, state.WorkersMax} {
		b.Run(fmt.Sprintf("kinds=%d", kinds), func(b *testing.B) {
			var v View
			for i := range state.WorkersMax {
				c := of(fmt.Sprintf("w%d", i), fmt.Sprintf("hardware-%d", i%kinds), int64(10+i%7), uint64(1000+i))
				c.Row.Slots, c.Row.Prefill1kNS, c.Row.Cost = 64, int64(40+i%5)*ms, uint64(1+i%3)
				v = append(v, c)
			}
			g, a := &state.Generation{Predicted: 2000, Prefill: 1000}, &state.Affinity{CostPercent: 50}
			b.ReportAllocs()
			for b.Loop() {
				v.Choose(g, a)
			}
		})
	}
}
