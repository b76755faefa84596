// Package quorum holds the rules by which a server may say that something is committed or
// that it still leads: what the answers of the voters prove, which index a linearizable
// read waits for, and how far a follower may be told that its log is committed.
//
// Each rule is one comparison, and each was wrong somewhere: raft.VerifyLeader counts an
// answer to a message that was sent before the question. Such an answer may be older than
// the election of another leader, and then a read misses what that leader committed.
//
// The package has no clock, goroutine, lock or socket: it is told what was sent and
// answered, and says what to send and which callers to answer. So the server
// (server/replica) and the simulated servers of the fault suite (jepsen/dst) run the same
// code.
package quorum
