// Package fsm is the replicated state machine: it applies committed entries to
// the state and decides, inside Apply, what runs where.
//
// A file for each subject, with its verbs. A verb validates, then writes; what it refuses is a
// result and changes nothing. After the commands of an entry the queues that
// they touched are scheduled (schedule.go), within a budget that bounds the work
// of one entry; what is left over stays in state and goes on with the next entry
// or a tick.
//
// Everything but machine.go is pure: no clock, no goroutine, no lock, no
// randomness. Time comes with the entry. machine.go alone knows hashicorp/raft.
//
// If a decision panics, the entry is applied again from the copy-on-write root
// it started from, without what panicked: the command is refused or the pool is
// halted, on every replica alike. Only a broken invariant stops the replica.
package fsm
