package rpc

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
)

// checkRole lets agents call AgentService and nobody else; servers and clients
// everything but that. Health and reflection are for all. It looks at the path
// and the certificate only, so a peer in the wrong role has nothing decoded.
func (s *Server) checkRole(next http.Handler) http.Handler {
	if !s.TLS {
		return next // only loopback is bound then
	}
	errorWriter := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role, err := pki.PeerRole(r.TLS)
		if err == nil && allowed(role, r.URL.Path) {
			ctx := context.WithValue(r.Context(), certificateName{}, pki.PeerName(r.TLS))
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		failure := &failure{
			code: connect.CodePermissionDenied, reason: "WRONG_ROLE",
			message: "the role of the certificate does not allow this call: AgentService is for agents, all else for clients and servers",
		}
		if err != nil {
			failure.code, failure.reason, failure.message = connect.CodeUnauthenticated, "NO_ROLE", err.Error()
		}
		// Nothing can be done about a caller that is gone already.
		_ = errorWriter.Write(w, r, failure.connectError())
	})
}

func allowed(role pki.Role, path string) bool {
	switch {
	case strings.HasPrefix(path, "/grpc."):
		return true
	case strings.HasPrefix(path, "/"+rotav1connect.AgentServiceName+"/"):
		return role == pki.RoleAgent
	}
	return role == pki.RoleClient || role == pki.RoleServer
}

// certificateName is the key of the caller's name in a context.
type certificateName struct{}

// checkNode lets an agent speak for the node that its certificate was issued to,
// and for no other: an agent that was broken into cannot end another's work.
func (s *Server) checkNode(ctx context.Context, node string) error {
	if name, _ := ctx.Value(certificateName{}).(string); s.TLS && name != node {
		return failed(connect.CodePermissionDenied, "WRONG_NODE",
			"this certificate was issued to %q and cannot speak for node %q: issue one with `rota tls issue agent %s`", name, node, node)
	}
	return nil
}
