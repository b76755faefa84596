// Package intake stands before the Connect handlers of a process and bounds the
// memory that requests take while they are read and decoded.
//
// A limit on the bytes of a request bounds little. Four kilobytes of gzip expand
// to four megabytes of protocol buffer, and these decode into two million empty
// messages: hundreds of megabytes, before any handler can count them. So this
// package reads each message first, expands it, and walks it without decoding
// it. The walk knows the Go type of each field, and adds up what decoding will
// allocate. A message that would take more than [ExpansionMax] times the limit on
// its bytes is refused, and never decoded.
//
// All requests of a kind share a [Budget] of bytes. A request takes its share
// while it is read, and gives it back when its handler returns, or, for streams,
// when it has been decoded. A request that finds the budget spent is refused with
// RESOURCE_EXHAUSTED and a delay after which it is welcome. Nothing waits for the
// budget, so nothing can wait for ever.
//
// One sender may take half of a budget, and what its refused requests took counts on,
// for up to five minutes. So whoever sends large requests that have to be refused cannot
// keep a server busy with them; its small requests, and those of others, are served.
//
// A part of each budget is left to small requests: leases are renewed while large
// batches are being refused.
package intake
