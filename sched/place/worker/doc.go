// Package worker decides which worker generates for a trajectory (Heddle §5, RollArt §5.1), and
// says why.
//
// Hardware comes first: the kinds that the trajectory prefers, in its order, and any other when
// all workers of these are full. Of the workers of one kind the one is chosen where all predicted
// work takes the least time: the predicted tokens of all its trajectories, each at the time that
// the profile of the engine gives for a batch of that size, and the prefix of the trajectory,
// which has to be computed there. So a worker that is twice as fast gets about twice the work.
//
// The choice is made once. Its KV cache ties a trajectory to its worker, which it leaves only if
// the worker fails, drains, is removed or misses a version of the policy, or a plan moves it.
//
// Those that wait for a worker get one in the order of their predicted tokens, the longest first:
// a step ends with its longest trajectory. One that has waited for state.GenerationWaitNSMax goes
// ahead of all that wait for less, so it waits at most for those that waited so long before it.
package worker
