package chunk

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// fleet are nodes of 8 GPUs, of which some are taken; on each GPU there are four
// models that take a fourth of it each.
func fleet(nodes, percent int) Nodes {
	ns := churn(nodes, percent)
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range ns {
		n := &ns[i]
		n.Memory = 80
		for range 4 {
			for s := uint8(0); s < 8; s += 2 {
				v := Variant(1 + rng.IntN(64))
				if c := (Chunk{s, 1}); n.resident(v, c) < 0 {
					n.Residents = append(n.Residents, Resident{Variant: v, Chunk: c, Bytes: 20, Used: int64(rng.IntN(1000))})
				}
			}
		}
		slices.SortFunc(n.Residents, Resident.Compare)
	}
	return ns
}

// indexed is a view that knows who holds what and who offers what, as state does.
type indexed struct {
	nodes    Nodes
	free     Counts
	holders  map[Variant][]int
	offering [Levels][]int
}

func index(ns Nodes) *indexed {
	x := &indexed{nodes: ns, free: ns.Free(), holders: make(map[Variant][]int)}
	for i, n := range ns {
		for l, k := range n.Free.Counts() {
			if k > 0 {
				x.offering[l] = append(x.offering[l], i)
			}
		}
		for _, r := range n.Residents {
			if h := x.holders[r.Variant]; len(h) == 0 || h[len(h)-1] != i {
				x.holders[r.Variant] = append(h, i)
			}
		}
	}
	return x
}

func (x *indexed) Free() Counts { return x.free }

func (x *indexed) Holders(v Variant, visit func(*Node) bool) { x.visit(x.holders[v], visit) }

func (x *indexed) Offering(l Level, visit func(*Node) bool) { x.visit(x.offering[l], visit) }

func (x *indexed) visit(nodes []int, visit func(*Node) bool) {
	for _, i := range nodes {
		if !visit(&x.nodes[i]) {
			return
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, nodes := range []int{5, 256} {
		for _, percent := range []int{50, 1} {
			x := index(fleet(nodes, percent))
			for _, c := range []struct {
				name    string
				request Request
			}{
				{"resident", Request{Variant: x.nodes[nodes-1].Residents[0].Variant, Level: 1, Bytes: 20}},
				{"evicting", Request{Variant: 99, Level: 1, Bytes: 20}},
				{"evicting-all", Request{Variant: 99, Level: 3}},
			} {
				b.Run(fmt.Sprintf("nodes=%d/taken=%d/%s", nodes, percent, c.name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						Choose(x, c.request)
					}
				})
			}
		}
	}
}

func BenchmarkCounts(b *testing.B) {
	s := All(64) &^ 0x0101_0204_0010_8003
	for b.Loop() {
		s.Counts()
	}
}

// torn are the free chunks of 256 nodes, half of them taken.
var torn = Counts{25, 9, 4, 121}

func BenchmarkNewOperator(b *testing.B) {
	for _, limit := range []int{1024, 1 << 20} {
		tasks := allDegrees(128)
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewOperator(torn, tasks, limit)
			}
		})
	}
}

func BenchmarkPrev(b *testing.B) {
	o, _ := NewOperator(torn, allDegrees(128), 4096)
	state := o.Full()
	for b.Loop() {
		for k := 1; k <= 8; k *= 2 {
			p, _ := o.Prev(state, k)
			state = max(p, o.Full()-4)
		}
	}
}

// BenchmarkArrange runs the reference DP of the tests: what the number of states
// costs.
func BenchmarkArrange(b *testing.B) {
	for _, c := range []struct {
		free  Counts
		tasks int
	}{{Counts{0, 0, 0, 5}, 40}, {Counts{0, 0, 0, 32}, 128}, {Counts{0, 0, 0, 256}, 128}, {torn, 32}, {torn, 128}} {
		var tasks []task
		for i := range int64(c.tasks) {
			tasks = append(tasks, task{[]int{1, 2, 4, 8}, []int64{800 + 7*i, 450 + 5*i, 260 + 3*i, 190 + i}})
		}
		o, _ := NewOperator(c.free, degrees(tasks), 1024)
		b.Run(fmt.Sprintf("free=%v/tasks=%d/states=%d", c.free, c.tasks, o.States()), func(b *testing.B) {
			for b.Loop() {
				arrange(o, tasks)
			}
		})
	}
}
