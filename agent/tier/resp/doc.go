// Package resp serves a tier.Store to unmodified Redis clients: LMCache's redis:// back
// end, redis-cli, redis-benchmark.
//
// It speaks RESP2, and RESP3 with clients that ask for it by HELLO 3. It listens on
// loopback or a Unix socket only: there is no TLS, and what is cached is as secret as the
// prompts that it was computed from.
//
// The parser is our own, because the servers that exist as libraries read a whole command
// into a buffer of theirs. Here the length of a value is known before the value is read,
// from the socket into the memory where it stays; and a value is answered from there.
// Every length is checked before anything is allocated for it.
package resp
