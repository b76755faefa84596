// Package netns holds the tests of what rota promises when the network breaks:
// an agent that is cut off has killed its work before the servers give it to
// another node.
//
// Servers and agents are real processes in network namespaces of their own, and
// the host's network is not touched: see package jepsen/cluster. What the agents
// run appends to a file, which is the witness: an append has one place in the
// order of all, so two attempts that overlap cannot hide.
package netns
