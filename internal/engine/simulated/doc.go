// Package simulated is an engine that is none: it computes nothing and stands in for vLLM, SGLang
// or another server where there is no GPU. It implements their documented endpoints over a real
// socket. Package model says what it does when, and this package has that happen in real time, or
// faster. It takes and frees memory in an account of simulated GPUs, and misbehaves if it is told
// to in the ways in which real engines do.
//
// Its text is words that begin with "sim". The next word is a function of the text before and of
// a seed, so a partial answer is continued exactly, by any engine with the same seed. Whatever it
// answers says "simulated".
//
// `rota engine simulate` is this engine. Tests of gateways and of the drivers of engines use it,
// and `rota bench engines`.
package simulated
