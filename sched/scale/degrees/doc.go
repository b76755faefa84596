// Package degrees decides how many GPUs each rollout worker shares its model over: the allocation
// of model-parallel degrees under a budget of GPUs (Heddle §6).
//
// A high degree makes tokens fast, and many workers of a low degree generate more tokens a second
// with the same GPUs. So the long trajectories want a high degree and the short ones a low one.
// Heddle anneals: it changes degrees at random, and places all trajectories anew for each change.
//
// Here both are decided at once, and exactly. For a makespan X and each number of GPUs, a table
// says how many trajectories, the longest first, can end within X: whatever worker is used last,
// those before it cover the most that the other GPUs can. X is feasible if the budget covers all,
// and the least feasible X is found by bisection, as in package partition.
//
// # What is exact
//
// The table does not ask that degrees fall from the longest to the shortest trajectories, as Heddle
// does, so its makespan is never above the best one of falling degrees. With times that depend on
// the size of a group only, it is the optimum over all degrees and all placements (package
// partition says why). With times that depend on contexts, it is the optimum over runs.
//
// # Batches that shrink
//
// The exact model takes a group to have its full batch until it ends. Choose counts that batches
// shrink (partition.Planner.Drain), with the exact degrees as one of its candidates, and doubts
// predictions: unequal degrees are good only if the long trajectories are known.
//
// # What is not covered
//
//   - Whether the GPUs of a degree are on one node. Degrees that are powers of two, handed out
//     from the highest, always fit aligned on nodes of a power of two GPUs.
//   - What it costs to change the degrees of workers that run. The caller weighs that.
package degrees
