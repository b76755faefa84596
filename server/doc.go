// Package server wires one rota server together and does what only a leader has
// to do.
//
// Its children know nothing of each other: replica commits, rpc answers, dispatch
// tells nodes what to do, gossip finds other members, mux shares the port. Here
// they meet. What is left is small: answers to renewals of leases (lease.go), which are
// deliberately not in the log, driving what a leader does (duties.go; leader decides
// it), and the quoting of state hashes (quote.go).
package server
