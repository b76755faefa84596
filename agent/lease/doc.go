// Package lease is a node's right to run attempts until a deadline, by this
// node's own clock.
//
// A renewal counts from when it was sent, and the deadline is a margin before
// its end, so everything is dead before the servers, who count from when they
// got it and a margin longer, give the node up. No clock is compared with
// another: the margin is what two of them may differ by during one lease.
//
// A Lease starts no goroutine and calls nobody, so that a simulation runs the
// very code that an agent runs.
package lease
