// Package e2e holds the tests of what rota promises when something breaks: that
// no acknowledged action is lost and none runs twice.
//
// They drive the built binary as real processes, as operators and clients do,
// and believe only what cannot be fooled by rota's own opinion: a witness file
// that every command appends to, locks that the kernel holds for as long as any
// process of an attempt is alive, and the table of processes.
//
// Nothing waits for a fixed time where a condition can be waited for. The
// exceptions are pauses that must outlast a lease.
package e2e
