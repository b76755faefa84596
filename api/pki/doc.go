// Package pki decides who may talk to whom.
//
// Given certificates, every port but gossip speaks TLS 1.3 with them on both
// sides; without, only loopback may be served in plain text (AllowPlaintext). A
// certificate says what its owner is, not where it lives: one URI name,
// rota://role/server, rota://role/agent or rota://role/client. So an address
// may change without a new certificate, and an agent's stolen key cannot pose
// as a server.
//
// The check is part of the handshake (tls.Config.VerifyConnection): a peer
// without a certificate, from another CA, out of date or in the wrong role is
// gone before a byte of its own is decoded. Handlers that admit one role only
// look at it again with PeerRole.
//
// Files are read again when they change, so certificates can be renewed under
// running processes. Connections that are already up keep the certificate they
// were made with.
//
// The file of the CA may hold several. AddCA, UseCA and RemoveCA replace one without a
// moment at which two processes do not trust each other.
//
// NewCA and Issue are enough for a cluster without a PKI of its own. Any other
// CA will do if it can add the URI name.
package pki
