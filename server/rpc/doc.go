// Package rpc answers rota's public API and its agents: a file per service.
//
// A handler checks its input, turns it into a command of the log or a read of
// the replicated state, and the outcome into an answer. It decides nothing: what
// may happen is up to the state machine, so that every server, asked in any
// order, says the same.
//
// Five things hold for all methods and are done in one place each. Who calls is found out by
// a certificate, a token or a JWT before a byte of the request is decoded (caller.go). What a
// caller may do is declared in one table, and checked with the request (rights.go,
// authorize.go). Every error leaves as a Connect code with an
// ErrorDetail that says what to do (errors.go). Reads are linearizable unless
// the request allows stale ones (read.go). Streams end when the server drains
// (rpc.go).
//
// What the package needs of the server around it are the small interfaces of
// Deps, so that tests can put the bare state machine there.
package rpc
