// Package models evaluates which models are evicted from GPUs: the same requests, in virtual
// time, on the real state machine at feature level 2, which evicts the least recently used
// models of the smallest free chunk that suffices (LRU), and at level 3, which evicts by set-up
// cost and uses. Only the nodes are simulated: an attempt takes the load time of its model if it
// was not resident, and then the time of the request.
//
// # Where the requests are from
//
// From a trace of pods on GPUs: each distinct combination of a number of GPUs, a share of a GPU
// and a memory class (powers of two) is a model, with the share as its part of the memory of
// each GPU. Requests are in the order of the trace, so popularity and locality are those of the
// file. The i-th model takes as long to load as line i of a trace of loads says. Pods
// without GPUs are left out. Without the traces, a generated list of requests has the same form:
// popularity by Zipf's law with phases, and load times of two kinds.
//
// Arrivals and execution times are drawn, as the trace has none. The load is the part of all
// GPUs that execution takes, without set-ups.
//
// # What would flatter the rule
//
// Known costs: so each comparison has a case in which clients declare no set-up. Unequal costs
// and popularity: so there are cases with equal costs, and with uniform popularity.
package models
