// Package entry holds the rules by which commands become entries of the log: which
// commands wait, which share an entry, the log time of the entry, and which results each
// caller gets.
//
// A mistake here costs more than time. A command that is committed in another term than
// the one that accepted it can give up a node that has come back. A caller that gets the
// results of another caller runs that caller's turn.
//
// The package has no clock, goroutine, lock or socket: times come in as arguments, and
// callers are values that it hands back. So the server (server/replica) and the simulated
// servers of the fault suite (jepsen/dst) run the same code.
package entry
