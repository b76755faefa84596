// Package replica keeps one replica of the log: hashicorp/raft on raft-wal, or on
// raft-boltdb, with what they leave open closed by wrappers.
//
// The data path is Propose: commands that arrive while an entry is in flight
// become the next entry (propose.go); a server that does not lead forwards them
// (forward.go); reads ask for an index that is linearizable (read.go). The rules of all
// that are in server/entry and server/quorum; here are goroutines, locks and Raft.
//
// What the wrappers are for:
//
//   - transport.go: raft lets heartbeats bypass its main loop, which lets a
//     deposed leader stamp an entry with its successor's term. Here every RPC
//     goes through the one channel, where votes can also be refused.
//   - stable.go: raft writes a vote as two records; here it is one, kept in two places.
//   - logstore.go: neither store verifies an entry when it is read; here each entry
//     has a checksum.
//   - mark.go: a store opens cleanly with its newest entries gone if the damage looks
//     like a crash: bbolt on its older meta page, raft-wal at a damaged append in its
//     newest file. A mark beside the store knows better, and such a server neither
//     votes nor stands until it has caught up (quarantine.go).
//   - wallist.go: raft-wal lists its files in a bbolt database, without a checksum. Here
//     the list is a file under one. raft-wal also refuses every append if a crash came
//     between the end of one file and the begin of the next, and can take the rest of a
//     torn append for entries, and counts an append that a killed process has not
//     flushed: the end of the newest file is brought into order, and made durable, before
//     raft-wal sees it (waltail.go).
//   - wal.go: raft-wal cannot store a log with a gap, which raft leaves behind a snapshot,
//     and its errors in the background are only logged.
//   - convert.go: the log moves from one store to the other when the server starts.
//   - guard.go: raft survives a failed or hanging disk; a process must not. The
//     first write that fails, or that takes too long, ends it.
//   - verify.go: raft counts an answer to an older message as proof of
//     leadership. Here only messages sent after the question count (server/quorum).
//   - propose.go: raft appends what it was given in one term also in the next, if
//     this server has lost and regained the leadership meanwhile. Here each proposal
//     belongs to the term in which it was accepted, each entry says in which term it
//     was stamped, and the state machine refuses one that raft has appended in another.
//   - members.go: raft does not tell the index of its newest configuration, without which it
//     cannot refuse a change that was checked against an older one. Here its refusals tell it.
//   - failover.go: a process that died on a living host refuses connections, so
//     its successor need not wait for a time-out.
//
// # What the mark does not see
//
// The mark is written right after each append, in the background, so that one
// client's commits are not slowed by a second flush. If power fails between an
// append and its mark, and the newest meta page of bbolt is damaged in the same
// event, the mark alone would miss that append. Therefore a damaged meta page
// also quarantines by itself; what remains is that such a server, under the very
// same leader and term, may leave quarantine while that last append has not been
// sent to it again. With raft-wal, damage of the very last append in that event cannot
// be told from a torn write, and is not noticed. Damage of both slots of the mark, and of the store, at once
// is not survived either.
//
// A quarantined server that has nobody to catch up with (a cluster of one) stays
// quarantined. To accept the loss, stop it and remove the file "mark".
package replica
