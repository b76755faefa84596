package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
)

// clientCalls change what belongs to the caller: its actions, trajectories, jobs, turns.
var clientCalls = map[string]bool{
	"SubmitActions": true, "BatchSubmitActions": true, "CancelActions": true, "RunAction": true,
	"OpenTrajectory": true, "CloseTrajectory": true,
	"StatFile": true, "WriteFile": true, "MakeDirectory": true, "MoveFile": true, "RemoveFile": true,
	"SubmitJob": true, "SuspendJob": true, "ResumeJob": true, "CompleteJob": true, "DeleteJob": true,
	"AcquireTurn": true, "RenewTurn": true, "YieldTurn": true,
	"RequestMigration": true, "CancelMigration": true,
	// A trainer says which version a worker has, and a gateway that one failed.
	"UpdateWorker": true, "SuspendTrajectory": true, "ResumeTrajectory": true, "ReportGenerations": true,
	"CreateRollout": true, "CloseRollout": true, "PutSample": true, "SuspendPolicy": true, "ResumePolicy": true, "PublishVersion": true,
}

// A call that is added must be given to a role: what only reads is for clients, all else
// is in one of two lists.
func TestEveryCallIsForARole(t *testing.T) {
	calls := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("rota.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			if service.FullName() == rotav1connect.AgentServiceName || service.FullName() == rotav1connect.OutputServiceName {
				continue
			}
			for j := range service.Methods().Len() {
				method := string(service.Methods().Get(j).Name())
				path := "/" + string(service.FullName()) + "/" + method
				reads := strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") ||
					strings.HasPrefix(method, "Watch") || strings.HasPrefix(method, "Read") || strings.HasPrefix(method, "Explain")
				if reads == (operatorOnly[path] || clientCalls[method]) || operatorOnly[path] && clientCalls[method] {
					t.Errorf("%s is for no role, or for two: put it into operatorOnly or clientCalls", path)
				}
				calls++
				checkRolesOf(t, path)
			}
		}
		return true
	})
	if calls < len(operatorOnly)+len(clientCalls) {
		t.Errorf("%d calls were seen, %d are listed", calls, len(operatorOnly)+len(clientCalls))
	}
}

func checkRolesOf(t *testing.T, path string) {
	t.Helper()
	for role, want := range map[pki.Role]bool{
		pki.RoleServer: true, pki.RoleOperator: true, pki.RoleClient: !operatorOnly[path], pki.RoleAgent: false,
	} {
		if got := refuseRole(role, path) == nil; got != want {
			t.Errorf("%s for %q: allowed is %v, want %v", path, role, got, want)
		}
	}
}
