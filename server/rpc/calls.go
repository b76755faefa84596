package rpc

import (
	"time"

	"connectrpc.com/connect"

	"rota/api/pki"
)

// callsMax is how many calls of clients a server has under way, streams and calls that wait among
// them.
const callsMax = 65536

// callsRetry is when a caller with too many calls may try again.
const callsRetry = time.Second

// takeCall counts a call as one of its caller until release is called; the failure says that there
// are too many. Operators, servers and agents are not counted: the cluster goes on and can be
// operated whatever its clients do. Neither are callers without an identity, who are all on this
// machine.
func (s *Server) takeCall(c *caller) (release func(), _ *failure) {
	if c.kind == byNothing || c.kind == byCertificate && c.role != pki.RoleClient {
		return func() {}, nil
	}
	if release, ok := s.calls.Take(c.key()); ok {
		return release, nil
	}
	f := failed(connect.CodeResourceExhausted, "TOO_MANY_CALLS",
		"this server has too many calls under way, or too many of %s %s: let some end, wait with one call for many actions, or use another server", c.kind, cut(c.name))
	f.retry = callsRetry
	return nil, f
}

// key tells identities apart: names of certificates, of tokens and of each method's JWTs may be the
// same.
func (c *caller) key() string { return c.kind + " " + c.method + " " + c.name }
