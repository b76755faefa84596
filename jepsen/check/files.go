package check

import (
	"cmp"
	"slices"

	"rota/jepsen/history"
)

// lastingFiles: what an action leaves in the directory of its trajectory, those that begin later
// find there, in the order in which it was left. All are on one node, which the trajectory
// never leaves.
func lastingFiles(e *evidence, f *findings) {
	of := make(map[uint64][]history.Execution)
	for _, x := range e.Executions {
		if x.Trajectory != 0 {
			of[x.Trajectory] = append(of[x.Trajectory], x)
		}
	}
	for id, list := range of {
		slices.SortStableFunc(list, func(a, b history.Execution) int { return cmp.Compare(a.Start, b.Start) })
		for i, later := range list {
			for _, x := range list[:i] {
				if x.Marked >= later.Start {
					continue // nobody knows which was first
				}
				f.checked++
				if !slices.Contains(later.Found, x.Token()) {
					f.add(describeExecutions(x, later), "action %d did not find in the directory of trajectory %d what action %d had left there", later.Action, id, x.Action)
				}
			}
		}
	}
}
