// Package model is what a simulated inference engine does, and when: continuous batching, chunked
// prefill, a prefix cache, priorities, preemption, sleep and versions of weights. It computes no
// token. Its times come from a Profile, which says where each of its figures is from.
//
// It has no clock, goroutine or socket: it is told the time, and says when the next thing
// happens. The simulator of rollouts drives it in virtual time, and the engine that
// `rota engine simulate` serves over HTTP drives it in real time. So both can be compared.
//
// # Steps
//
// An engine works in steps (iteration-level scheduling). The batch changes only between two
// steps: a request that arrives during a step waits for its end. A step gives each decoding
// request one token. It also computes up to ChunkTokens tokens of prompts that are in no cache,
// of the requests in the order in which they were admitted. A request whose prompt ends in a
// step gets its first token at the end of that step. The time of a step is
//
//	Batch(requests in the step) + KVRead x (tokens in the KV cache of decoding requests)
//	  + PrefillToken x (prompt tokens) + PrefillPair x (pairs of prompt tokens and tokens before)
//
// so prefill and decoding interfere by addition. Hardware overlaps a part of both, which makes
// this an upper bound.
//
// # Why it is fast
//
// The contexts of a batch grow by one token a step, so n steps without prefill take a sum that
// has a closed form. The engine goes from one change of its batch to the next, however many
// tokens lie between. Times are whole picoseconds inside, so that the form is exact: a test
// compares it with a model that counts every token.
//
// # What is simplified
//
// KV caches are counted in tokens, not in blocks. Requests with one Key share no memory while
// both run, and a Parent's prefix is counted beside those that were begun from it. An engine with
// several data-parallel ranks is several engines.
package model
