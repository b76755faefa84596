// Package server wires one rota server together and does what only a leader has
// to do.
//
// Its children know nothing of each other: replica commits, rpc answers, dispatch
// tells nodes what to do, gossip finds other members, mux shares the port. Here
// they meet. What is left is small: the leases of nodes (lease.go), which are
// deliberately not in the log, the ticks that make timers fire when they are due
// (ticker.go), and the quoting of state hashes (quote.go).
package server
