// Package order answers when: which of the waiting actions is next.
//
// The order is first come, first served over all namespaces of a key resource.
// Strict FCFS would leave cores idle behind an action that does not fit yet, so
// younger ones may bypass it, but only a bounded number of times and for a
// bounded time. After that the action's node is kept free for it. So nothing
// starves: an action that fits some node starts after at most the work that was
// older or had bypassed it by then.
package order
