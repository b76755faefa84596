// Package scale answers how much: the degree of parallelism of an action.
//
// An action says which degrees of its key resource it can use (DoPSet) and how
// long it takes with each (Demand). What is free is then divided so that the
// actions that start now and those that wait behind them end early on the whole.
// This is the elastic scheduling of ARL-Tangram (§4.2, Algorithms 1 to 3), pure:
// numbers in, a decision out, nothing known of nodes, queues or time.
//
// It is done in two steps, and each is a type.
//
//   - Arranger (Algorithm 3, DPArrange): the least sum of durations of the first t
//     candidates, for every t at once. One table holds all the answers, so an
//     eviction costs a step back in the table and not another table.
//   - Elastic (Algorithms 1 and 2): starts with all candidates and evicts the last
//     one, as long as the candidates that gain from its units gain more than it
//     and those behind it lose.
//
// # How the printed algorithms are read
//
//   - Algorithm 3 asks for an allocation of exactly n units. For degrees such as
//     {1, 2, 4, 8} there often is none. Here it is at most n: an empty allocation
//     costs 0 whatever is free, not only where nothing is.
//   - Line 13 of Algorithm 1 takes a prefix by the number of the iteration that
//     failed. Here it is the last prefix that was accepted, and the first
//     candidate always is in it: evicting all would leave units idle for no gain.
//   - Algorithm 2 pops from one heap and pushes to another, and does not restore
//     it for the next choice of depth. Here each choice has its own copy. With
//     nobody left to wait for, the estimate is 0 and not infinite.
//   - getDur(d) is the duration with the d-th allowed degree, not with d units.
//
// # What is computed differently, with the same result
//
//   - The estimate counts no units, and durations never grow with units. So of the
//     degrees that the first remaining action may explore, the largest is never
//     worse than another, and only that one is evaluated.
//   - Where every candidate takes a contiguous range of degrees with convex
//     durations (each further unit saves at most as much as the one before),
//     handing out units one by one to whom they help most gives the optimum, and
//     an eviction hands out only what it frees.
//   - Ends of actions are kept sorted from one eviction to the next. The completion
//     heap is a tournament of no more of them than can have their turn.
//
// # Ties, unknowns and bounds
//
// Of several optimal allocations it is the one that gives the last candidate the
// least, then the one before it, and so on: units without a gain stay free, and
// of equals the older gains. Both ways of arranging give this same allocation.
// An eviction that does not lower the objective is not done.
//
// An action without a known duration gets its least degree, and counts as long as
// those with a known one do on average. An action of known duration whose
// elasticity is unknown gets its least degree too. If no candidate is elastic, all
// of them start (Algorithm 1, line 6).
//
// The estimate looks one by one at no more than LookAhead actions behind the
// candidates. Those behind them are counted only: each is taken to start a mean
// duration, divided by how many run side by side, after the one before. To leave
// them out instead would make evictions look cheaper than they are in a long
// queue. For queues no longer than the look-ahead, decisions are those of the
// algorithms as read above; for longer ones this is an approximation of them.
//
// Sums of ends are 128 bits wide. Durations are at most DurationMax and there are
// at most CandidatesMax candidates, so nothing else overflows.
package scale
