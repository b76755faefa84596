package rpc

import (
	"context"

	"connectrpc.com/connect"
)

// checkNode lets an agent speak for the node that its certificate was issued to,
// and for no other: an agent that was broken into cannot end another's work.
func (s *Server) checkNode(ctx context.Context, node string) error {
	if name := callerName(ctx); s.TLS && name != node {
		return failed(connect.CodePermissionDenied, "WRONG_NODE",
			"this certificate was issued to %q and cannot speak for node %q: issue one with `rota tls issue agent %s`", name, node, node)
	}
	return nil
}
