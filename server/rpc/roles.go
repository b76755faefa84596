package rpc

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
)

// operatorOnly are the calls that change the cluster for all clients. One client must not
// be able to take its resources from another.
var operatorOnly = map[string]bool{
	rotav1connect.OperatorServiceAddPeerProcedure:            true,
	rotav1connect.OperatorServiceMovePeerProcedure:           true,
	rotav1connect.OperatorServiceRemovePeerProcedure:         true,
	rotav1connect.OperatorServiceTransferLeadershipProcedure: true,
	rotav1connect.OperatorServiceTakeSnapshotProcedure:       true,
	rotav1connect.OperatorServiceCreateNamespaceProcedure:    true,
	rotav1connect.OperatorServiceDeleteNamespaceProcedure:    true,
	rotav1connect.OperatorServiceDeletePoolProcedure:         true,
	rotav1connect.OperatorServiceResumePoolProcedure:         true,
	rotav1connect.OperatorServiceRaiseLevelProcedure:         true,
	rotav1connect.NodeServiceDrainNodeProcedure:              true,
	rotav1connect.NodeServiceDisableGpusProcedure:            true,
	rotav1connect.NodeServiceEnableGpusProcedure:             true,
	rotav1connect.NodeServiceRemoveNodeProcedure:             true,
	rotav1connect.QuotaServiceCreateQuotaProcedure:           true,
	rotav1connect.QuotaServiceUpdateQuotaProcedure:           true,
	rotav1connect.QuotaServiceDeleteQuotaProcedure:           true,
	rotav1connect.LedgerServiceCreateNodeGroupProcedure:      true,
	rotav1connect.LedgerServiceSetNodeGroupMembersProcedure:  true,
	rotav1connect.LedgerServiceDeleteNodeGroupProcedure:      true,
	rotav1connect.LedgerServiceResumeLedgerProcedure:         true,
	rotav1connect.ClassServiceDeleteClassProcedure:           true,
	rotav1connect.EngineServiceRegisterEngineProcedure:       true,
	rotav1connect.EngineServiceRemoveEngineProcedure:         true,
	rotav1connect.WorkerServiceRegisterWorkerProcedure:       true,
	rotav1connect.WorkerServiceRemoveWorkerProcedure:         true,
}

// checkRole lets only agents call AgentService; servers, operators and
// clients everything but that, and clients nothing that is for operators only. Health and
// reflection are for all. It looks at the path and the certificate only, so a peer in the
// wrong role has nothing decoded.
func (s *Server) checkRole(next http.Handler) http.Handler {
	if !s.TLS {
		return next // only loopback is bound then
	}
	errorWriter := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role, err := pki.PeerRole(r.TLS)
		refusal := refuseRole(role, r.URL.Path)
		if err != nil {
			refusal = failed(connect.CodeUnauthenticated, "NO_ROLE", "%v", err)
		}
		if refusal != nil {
			// Nothing can be done about a caller that is gone already.
			_ = errorWriter.Write(w, r, refusal.connectError())
			return
		}
		ctx := context.WithValue(r.Context(), certificateName{}, pki.PeerName(r.TLS))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// refuseRole returns why a role may not call what is at a path, nil if it may.
func refuseRole(role pki.Role, path string) *failure {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	isAgent := role == pki.RoleAgent
	switch {
	case strings.HasPrefix(path, "/grpc."):
		return nil
	case isAgent != (service == rotav1connect.AgentServiceName):
		return failed(connect.CodePermissionDenied, "WRONG_ROLE",
			"this certificate has the role %q: AgentService is for agents, all else for clients, operators and servers", role)
	case operatorOnly[path] && role != pki.RoleOperator && role != pki.RoleServer:
		return failed(connect.CodePermissionDenied, "OPERATOR_REQUIRED",
			"%s needs an operator's certificate, and this one has the role %q: issue one with `rota tls issue operator NAME`", method, role)
	}
	return nil
}

// certificateName is the key of the caller's name in a context.
type certificateName struct{}

// callerName is the name on the caller's certificate; empty without TLS.
func callerName(ctx context.Context) string {
	name, _ := ctx.Value(certificateName{}).(string)
	return name
}

// checkNode lets an agent speak for the node that its certificate was issued to,
// and for no other: an agent that was broken into cannot end another's work.
func (s *Server) checkNode(ctx context.Context, node string) error {
	if name := callerName(ctx); s.TLS && name != node {
		return failed(connect.CodePermissionDenied, "WRONG_NODE",
			"this certificate was issued to %q and cannot speak for node %q: issue one with `rota tls issue agent %s`", name, node, node)
	}
	return nil
}
