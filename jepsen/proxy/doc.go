// Package proxy puts a bad network between servers that are otherwise on a good
// one: delays, losses and resets, for each direction of each pair by itself.
//
// Members advertise the addresses of listeners here; who speaks is known by the
// IP address that a connection or a packet comes from. What a rule says about
// from and to holds for bytes on their way from one to the other, whoever opened
// the connection.
//
// # What is real and what is not
//
//   - A lost datagram is gone. Delays reorder datagrams that overtake each other.
//   - TCP hides losses: what is lost comes later, and everything behind it waits.
//     So a lost piece, up to 16 KiB of a stream, is late by a retransmission
//     time-out that doubles from 200 ms to 2 s. A loss of everything is a
//     partition that heals: what had been sent arrives then.
//   - A connection is accepted here before its server is asked. Whoever dials a
//     server that is gone sees a reset, not a refusal, and a server that refuses
//     because it has just died cannot be told from one that is slow. Failover is
//     slower therefore than without a proxy.
//   - Servers see the proxy's address. Packet filters between members do not see
//     what goes through here: cut with a loss of everything instead.
package proxy
