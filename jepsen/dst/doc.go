// Package dst is deterministic simulation: hours of a whole cluster in a second,
// from a seed.
//
// A seed becomes a plan, a list of events with virtual times: what clients ask
// for and what goes wrong. The plan is carried out on the world of internal/sim, which
// holds the real state machine on three or five replicas, what a leader really does
// (server/leader), the real rules of entries, majorities and leases (server/entry,
// server/quorum, server/lease), and agents that follow the real protocol. Then everything is
// healed, and what was accepted has to come to an end.
//
// After every committed entry the state's own invariants are checked and the
// reference model of jepsen/model must agree; replicas must have equal hashes at
// equal indexes, however they came there. A witness outside the state machine
// sees every execution begin and end: an action has at most one at a time, a core
// runs at most one, and nothing has succeeded that was not done. Reads at leaders, at
// deposed leaders and at followers see every entry that was acknowledged before.
//
// A seed that fails is run again with fewer and fewer events, and what is left
// is told as a story.
//
// Not covered: hashicorp/raft. The log here is a model of what Raft promises,
// with leaders that change at any moment, lose what was not committed, or commit
// it and lose the answer. Servers keep the promises of Raft in their answers, so that the
// real rules decide what these prove. Disks and sockets are the business of the scenarios
// with real processes.
package dst
