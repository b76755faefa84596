// Package transmit decides which migrations of KV caches run: the transmission scheduler of
// Heddle (§5.3).
//
// It is greedy. The longest trajectory goes first, and a migration is passed over while one of
// its nodes is in another transfer, so the running ones are always parallel and share no node.
// A transfer between two nodes then has both network links to itself, and the trajectories that
// a step waits for do not wait for others.
//
// The migration of a trajectory runs only in a tool gap: while an action of the trajectory is
// queued or runs. The model waits for the tool then, and nobody writes its KV cache.
//
// What a migration waits for and whether it may start are one function, so an explanation
// cannot differ from the decision.
package transmit
