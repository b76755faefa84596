// Package simulated is an engine that is none: it computes nothing and stands in for vLLM,
// SGLang or another server where there is no GPU. It implements their documented endpoints over
// a real socket, takes and frees memory in an account of simulated GPUs, takes its time, and
// misbehaves if it is told to in the ways in which real engines do.
//
// Tests of the drivers use it, and `rota bench engines`. Whatever it answers says "simulated".
package simulated
