// Package mux lets Raft and HTTP share one port, so that a server has one
// address, one firewall rule and one certificate.
//
// With TLS the protocol is chosen in the handshake by ALPN, "rota-raft" or
// HTTP, and Raft is for servers only: Raft's own RPC has no authentication at
// all, so whoever reached its decoder could rewrite the log. In plain text,
// which is served on loopback only, our own dialer announces Raft with one byte
// that no HTTP request begins with.
//
// Connections that have not said yet what they want are limited in number. When
// there are too many, the one that has waited the longest goes: a real client
// needs milliseconds, and one that sends nothing must not keep others out.
//
// Connections without a client certificate, which tokens need, are limited for as long
// as they are open. When there are too many, the oldest one of the address that has the
// most goes. Connections with a certificate are not limited.
package mux
