// Package lease is the leader's memory of which nodes, and which holders of turns,
// are alive. It is not in the log: a renewal costs a round of messages to a majority,
// shared by all that arrive together, and no write.
//
// Three rules make it safe. A renewal counts only if the leader verified, after
// the renewal arrived, that it still leads, so one that was deposed cannot renew.
// The leader gives a node up only after lease + margin without a renewal, by its
// own clock; the agent stops earlier, at lease - margin counted from when it sent
// the renewal. A new leader knows nothing and so starts every count from zero.
//
// Turns have leases too, held or waiting, so that the queue never contains turns whose
// client is gone. A holder that was asked to stop and does not is no longer renewed
// after one lease.
//
// A Table is these rules and nothing else: it starts no goroutine, knows no Raft
// and reads no clock but the one that it is given, so that a simulation runs the
// very code that a server runs.
package lease
