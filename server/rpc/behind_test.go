package rpc_test

import (
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/server/rpc"
)

// TestAServerThatWasBehindLooksAtRightsAgain: the log checks the tokens of its commands. All else is
// refused once the server has caught up with the end of a token, or with a policy of fewer rights.
func TestAServerThatWasBehindLooksAtRightsAgain(t *testing.T) {
	behind := &catchingUp{}
	s := newSecured(t, func(d *rpc.Deps) { behind.Replica, d.Replica = d.Replica, behind })
	fewer, err := proto.Marshal(&rotav1.AccessPolicy{Name: "team", Rules: []*rotav1.AccessRule{allow("b", rights.Any, rights.Any)}})
	if err != nil {
		t.Fatal(err)
	}
	trajectory := fmt.Sprintf(`{"trajectoryId": %d}`, s.ids["a"]["trajectory"])
	action, turn := s.ids["a"]["action"], s.turnOf("a")
	for call, body := range map[string]string{
		"FileService/ReadFile":               trajectory,
		"FileService/WriteFile":              trajectory,
		"FileService/MakeDirectory":          trajectory,
		"FileService/MoveFile":               trajectory,
		"FileService/RemoveFile":             trajectory,
		"StreamService/WriteActionInput":     fmt.Sprintf(`{"actionId": %d}`, action),
		"StreamService/SignalAction":         fmt.Sprintf(`{"actionId": %d, "signal": "TERM"}`, action),
		"StreamService/ResizeActionTerminal": fmt.Sprintf(`{"actionId": %d, "size": {"rows": 24, "columns": 80}}`, action),
		"TurnService/GetTurn":                fmt.Sprintf(`{"turnId": %d}`, turn),
		"ActionService/GetAction":            fmt.Sprintf(`{"id": %d}`, action),
		"TrajectoryService/GetTrajectory":    fmt.Sprintf(`{"id": %d}`, s.ids["a"]["trajectory"]),
		"ActionService/ListActions":          `{"namespace": "a"}`,
	} {
		for what, c := range map[string]struct {
			change func(accessor string) *logv1.Command
			status int
		}{
			"revoked": {func(accessor string) *logv1.Command {
				return &logv1.Command{Verb: &logv1.Command_RemoveAccess{RemoveAccess: &logv1.RemoveAccess{Token: accessor}}}
			}, http.StatusUnauthorized},
			"narrowed": {func(string) *logv1.Command {
				return &logv1.Command{Verb: &logv1.Command_PutAccessPolicy{PutAccessPolicy: &logv1.PutAccessPolicy{Name: "team", Spec: fewer}}}
			}, http.StatusForbidden},
		} {
			accessor, secret := s.token("team", allow("a", rights.Any, rights.Any))
			behind.then = func() { s.apply(c.change(accessor)) }
			if status, answer := s.asJSON(call, secret, body); status != c.status {
				t.Errorf("%s with a token that was %s: %d: %s", call, what, status, answer)
			}
			behind.then = nil
		}
	}
}

// A server that was behind looks at the right to a snapshot again before a trajectory begins with it.
func TestAForkNeedsTheRightToItsSnapshotAfterTheCatchUp(t *testing.T) {
	behind := &catchingUp{}
	s := newSecured(t, func(d *rpc.Deps) { behind.Replica, d.Replica = d.Replica, behind })
	opens := allow("a", "trajectory", rights.Submit)
	fewer, err := proto.Marshal(&rotav1.AccessPolicy{Name: "forks", Rules: []*rotav1.AccessRule{opens}})
	if err != nil {
		t.Fatal(err)
	}
	_, secret := s.token("forks", opens, allow("a", "snapshot", rights.Read))
	behind.then = func() {
		s.apply(&logv1.Command{Verb: &logv1.Command_PutAccessPolicy{PutAccessPolicy: &logv1.PutAccessPolicy{Name: "forks", Spec: fewer}}})
	}
	body := fmt.Sprintf(`{"namespace": "a", "snapshotId": %d}`, s.ids["a"]["snapshot"])
	if status, answer := s.asJSON("TrajectoryService/OpenTrajectory", secret, body); status != http.StatusForbidden {
		t.Errorf("with a token whose right ended while the server caught up: %d: %s", status, answer)
	}
}
