// Package order answers when: which of the waiting actions is next.
//
// # Actions
//
// The order is first come, first served over all namespaces of a key resource; from feature
// level 3 on namespaces share by weight, and it is so within each (fair.go). Strict FCFS
// would leave cores idle behind an action that does not fit yet, so younger ones may bypass it, but only a bounded number of times and for a
// bounded time. After that the action's node is reserved for it. So nothing
// starves: an action that fits some node starts after at most the work that was
// older or had bypassed it by then.
//
// # Turns
//
// Operations of training deployments take turns on a group of nodes. A turn of
// another deployment than the one before has to be set up, so the order is HRRS,
// Highest Response Ratio with Setup (PlexRL §4.4): first whose waiting time is the
// most for its service time, set-up included. Short turns need not wait behind long
// ones, and those of one deployment tend to stay together. Ratios are compared by
// cross products of 128 bits.
//
// The printed Algorithm 1 differs from the text around it, and this from both:
//
//   - Line 8 adds set-up for every turn but the one that runs; equations 3 and 4 do
//     so only where the deployment changes. The equations are right: otherwise there
//     is no reason to stay with one deployment.
//   - Lines 8 and 17 both count the set-up of the first turn. Here it is counted once.
//   - Line 18 stops what runs whenever another has a higher ratio. Here only a turn
//     that says it can be stopped is; others keep the group until they yield it. A
//     turn that was stopped has to be set up again.
//   - The algorithm sorts all requests. But operations of a deployment run in order,
//     so only the first of each takes part: a short one does not get ahead of the
//     long one that it has to follow.
//   - Of equal ratios it is the one that runs, then one of the resident deployment,
//     then the older. All who have just arrived have the same ratio.
//
// # Nothing starves
//
// The ratio of a turn that waits grows without bound, that of one that has just
// arrived is 1. That alone is not enough: where short turns keep arriving faster than
// they can be served, those in front of the queue have high ratios too. But
// deployments are few and their operations are in order, so one that has been served
// comes back with a waiting time of 0. Let a turn wait for u. Another goes before it
// only if it has waited for at least rho*u, where rho is the least service time by the
// most; so between two turns of that deployment u grows by a factor of 1/(1-rho), and
// their number is logarithmic in u. The group is never idle meanwhile, so u is at most
// what these turns take together, and that bounds it (TestNothingStarves).
package order
