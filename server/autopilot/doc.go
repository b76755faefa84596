// Package autopilot decides when a leader changes the members of the cluster by itself: a
// server that joined gets a vote when it has been healthy for a while, and a server that has
// been dead for long is removed if enough voters are left. Of the servers of a redundancy
// zone one votes, and the others are spares. It is the idea of
// hashicorp/raft-autopilot, told what was seen and when, so that tests can tell it anything.
//
// That module itself does not fit. It takes from a membership layer which servers live,
// and here gossip is a hint that never votes: the leader asks each server. It changes Raft
// directly, past the checks of rota (identity, quarantine, all voters present); here the
// checked calls of an operator are used. It promotes at once while it has run for less than
// the time of stabilisation (ServerStabilizationTime), so after every election. It also counts a
// server that joined towards MinQuorum from its first moment, healthy or not, when it removes a dead
// voter of three (adjudicateRemoval of version 0.3.0). Here only a stable replacement counts.
//
// Nothing here is replicated: a new leader counts every time from zero, as with leases.
package autopilot
