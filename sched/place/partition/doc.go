// Package partition decides which rollout worker generates for which trajectory: the presorted
// placement of Heddle (§5.2), and its correction while trajectories run (§5.3).
//
// A group of n trajectories on worker k takes TokenNS_k(n) times the length of its longest
// trajectory, and the makespan is the longest time of a group. Trajectories are sorted, the
// longest first, and a group is a run of them.
//
// # Bisection instead of dynamic programming
//
// A group that loses trajectories gets no slower. So for a makespan X and an order of workers,
// the largest group that X allows is never the wrong choice: whatever follows has less left. X is
// feasible if these groups cover all trajectories, and the least feasible X is found by bisection.
// Each test moves a bound to a value that a makespan can have, so the result is exact, and the
// time hardly depends on the number of trajectories. This is why short trajectories need not be
// aggregated, as Heddle does it: they cost nothing.
//
// # The order of workers
//
// Heddle gives the longest trajectories to the workers of the highest degree. That is not always
// best: with 10, 1, 1, 1, ... tokens, a worker twice as slow may take the long trajectory alone
// in the time in which the fast one takes twenty short ones. The lemma of Heddle (5.1) holds for
// workers of different kinds too, because its exchange leaves the sizes of groups alone; but it
// says that groups are runs in some order of workers. So here a test takes all orders: for each
// number of workers used of each kind, how far they reach. With times that depend on the size of
// the group only, the result is the optimum over all placements, sorted or not.
//
// # Batches that shrink
//
// On an engine a group gets faster as its shorter trajectories end. Drain and Rebalance count that:
// with lengths L(1) >= L(2) >= ..., a worker has drained after the sum of
// (L(i) - L(i+1)) x TokenNS(i). The exact partition is one candidate of Drain, and a local search
// improves the best one. What they return is never worse than the candidates, and need not be
// optimal.
//
// # What is not covered
//
//   - With more than StatesMax combinations of kinds, only two orders are taken, the fastest
//     first and the slowest first. A bounded local search follows. So give workers that are alike
//     one profile, and not each its own measurement.
//   - With times that depend on contexts (Worker.ContextNS), the result is the optimum over runs in
//     any order. A placement that is not of runs can be better. The local search follows here too.
//   - Lengths are predictions, and all trajectories are taken to run from now on.
package partition
