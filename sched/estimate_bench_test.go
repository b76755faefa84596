package sched

import (
	"fmt"
	"testing"

	"rota/fsm/state"
)

// BenchmarkEstimateStart is one estimate for the last of a queue, before which nodes are
// full of attempts of a class.
func BenchmarkEstimateStart(b *testing.B) {
	for _, c := range []struct{ nodes, cores, waiting int }{{1, 16, 4}, {1, 256, 64}, {5, 256, 200}, {256, 64, 1_000_000}} {
		b.Run(fmt.Sprintf("nodes=%d/cores=%d/waiting=%d", c.nodes, c.cores, c.waiting), func(b *testing.B) {
			w, last := estimateWorld(c.nodes, c.cores, c.waiting)
			all := []*state.Action{w.Action(last)}
			b.ReportAllocs()
			for b.Loop() {
				if e := EstimateStarts(w.State, all, 0)[0]; e.Unknown != "" || e.P50NS <= 0 || e.P90NS < e.P50NS {
					b.Fatalf("%+v", e)
				}
			}
		})
	}
}

// BenchmarkEstimateStarts is that for all actions of one submission.
func BenchmarkEstimateStarts(b *testing.B) {
	w, last := estimateWorld(5, 256, 1000)
	all := make([]*state.Action, 1000)
	for i := range all {
		all[i] = w.Action(last - state.ActionID(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		EstimateStarts(w.State, all, 0)
	}
}

// estimateWorld has full nodes and actions that wait, all of a class whose attempts take 1 to
// 100 s, and returns the last of them.
func estimateWorld(nodes, cores, waiting int) (w *world, last state.ActionID) {
	all := make([]int, nodes)
	for i := range all {
		all[i] = cores
	}
	w = newWorld(all...)
	c := &state.Class{ID: 1, Namespace: 1, Name: "suite"}
	for i := range int64(100) {
		c = c.Lived((i+1)*second, true)
	}
	w.PutClass(c)
	a := state.Action{CoresMin: 1, CoresMax: 1, Class: 1}
	for n := range nodes {
		for i := range cores {
			w.began(state.NodeID(n+1), a, int64(i%60))
		}
	}
	for range waiting {
		last = w.queue(a)
	}
	return w, last
}
