package rpc_test

import (
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/rights"
	"rota/fsm/state"
	"rota/server/rpc"
)

// A client that did not hear the answer repeats its request to begin with a snapshot. It gets the first
// answer, though the snapshot was deleted since.
func TestAForkIsRepeatedAfterItsSnapshotIsGone(t *testing.T) {
	w := newWorld(t)
	must := func(c *logv1.Command) *logv1.Result {
		t.Helper()
		r := w.apply(c)[0]
		if r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
		return r
	}
	report := func(incarnation, id uint64, s state.FileSnapshotState) {
		must(&logv1.Command{Verb: &logv1.Command_ReportSnapshots{ReportSnapshots: &logv1.ReportSnapshots{
			Node: "n1", Incarnation: incarnation, Reports: []*logv1.SnapshotReport{{SnapshotId: id, State: uint32(s)}},
		}}})
	}
	incarnation := must(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: "n1", JournalId: "n1", Address: "127.0.0.1:1", MemoryBytes: 1 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0, 1}}},
	}}}).Incarnation
	first, err := w.trajectories().OpenTrajectory(t.Context(), &rotav1.OpenTrajectoryRequest{
		IdleTimeout: durationpb.New(time.Hour), Spec: &rotav1.TrajectorySpec{Dir: "src"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := must(&logv1.Command{Verb: &logv1.Command_ChangeSnapshot{ChangeSnapshot: &logv1.ChangeSnapshot{
		Change: &logv1.ChangeSnapshot_Create{Create: &logv1.CreateSnapshot{TrajectoryId: first.Trajectory.Id}},
	}}}).FirstId
	report(incarnation, id, state.FileSnapshotReady)
	req := &rotav1.OpenTrajectoryRequest{
		SnapshotId: id, IdleTimeout: durationpb.New(time.Hour), RequestId: "r", ExpireTime: timestamppb.New(time.Unix(0, w.logTime()).Add(time.Minute)),
	}
	fork, err := w.trajectories().OpenTrajectory(t.Context(), req)
	if err != nil || fork.Trajectory.GetSpec().GetDir() != "src" {
		t.Fatalf("opened %v: %v", fork, err)
	}
	must(&logv1.Command{Verb: &logv1.Command_ChangeSnapshot{ChangeSnapshot: &logv1.ChangeSnapshot{Change: &logv1.ChangeSnapshot_Delete{Delete: id}}}})
	for _, moment := range []string{"being deleted", "gone"} {
		again, err := w.trajectories().OpenTrajectory(t.Context(), req)
		if err != nil || !again.Replayed || again.Trajectory.GetId() != fork.Trajectory.Id {
			t.Errorf("with the snapshot %s, the repetition was answered %v: %v", moment, again, err)
		}
		report(incarnation, id, state.FileSnapshotLost)
	}
	for what, c := range map[string]struct {
		change func(*rotav1.OpenTrajectoryRequest)
		want   connect.Code
	}{
		"another request":              {func(r *rotav1.OpenTrajectoryRequest) { r.RequestId = "s" }, connect.CodeNotFound},
		"a request without an ID":      {func(r *rotav1.OpenTrajectoryRequest) { r.RequestId, r.ExpireTime = "", nil }, connect.CodeNotFound},
		"the ID with another snapshot": {func(r *rotav1.OpenTrajectoryRequest) { r.SnapshotId++ }, connect.CodeAlreadyExists},
		"the ID without one":           {func(r *rotav1.OpenTrajectoryRequest) { r.SnapshotId = 0 }, connect.CodeAlreadyExists},
	} {
		other := proto.CloneOf(req)
		c.change(other)
		if got, err := w.trajectories().OpenTrajectory(t.Context(), other); connect.CodeOf(err) != c.want {
			t.Errorf("%s was answered %v: %v, want %v", what, got, err, c.want)
		}
	}
}

// A trajectory has the files of the snapshot that it begins with, so who opens it needs the right to read
// snapshots of its namespace.
func TestAForkNeedsTheRightToItsSnapshot(t *testing.T) {
	s := newSecured(t)
	open := rotav1connect.TrajectoryServiceOpenTrajectoryProcedure
	for snapshot, want := range map[string]string{"": "", `,"snapshotId":"99"`: "RIGHT_MISSING"} {
		_, secret := s.token("opens", allow("a", "trajectory", rights.Submit), allow("b", "snapshot", rights.Read))
		if got := s.call(rpc.Calls()[open], open, secret, []byte(`{"namespace":"a"`+snapshot+`}`), time.Minute); got != want {
			t.Errorf("with a token that may not read snapshots, %s: %q, want %q", snapshot, got, want)
		}
		_, secret = s.token("opens-forks", allow("a", "trajectory", rights.Submit), allow("a", "snapshot", rights.Read))
		if got := s.call(rpc.Calls()[open], open, secret, []byte(`{"namespace":"a"`+snapshot+`}`), time.Minute); got != "" {
			t.Errorf("with a token that may, %s: %q", snapshot, got)
		}
	}
}
