package e2b

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

func (c *cluster) CreateSnapshot(_ context.Context, req *rotav1.CreateSnapshotRequest) (*rotav1.CreateSnapshotResponse, error) {
	c.kept = &rotav1.Snapshot{Id: 3, Name: req.Name, TrajectoryId: req.TrajectoryId, State: rotav1.SnapshotState_SNAPSHOT_STATE_CREATING}
	return &rotav1.CreateSnapshotResponse{Snapshot: c.kept}, nil
}

// GetSnapshot returns the snapshot, which is ready or has failed from then on.
func (c *cluster) GetSnapshot(context.Context, *rotav1.GetSnapshotRequest) (*rotav1.GetSnapshotResponse, error) {
	if c.kept == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no snapshot"))
	}
	answer := proto.CloneOf(c.kept)
	c.kept.State = rotav1.SnapshotState_SNAPSHOT_STATE_READY
	if c.kept.Name == "bad" {
		c.kept.State, c.kept.Message = rotav1.SnapshotState_SNAPSHOT_STATE_FAILED, "the disk is full"
	}
	return &rotav1.GetSnapshotResponse{Snapshot: answer}, nil
}

func (c *cluster) ListSnapshots(context.Context, *rotav1.ListSnapshotsRequest) (*rotav1.ListSnapshotsResponse, error) {
	return &rotav1.ListSnapshotsResponse{Snapshots: []*rotav1.Snapshot{c.kept, {Id: 4, State: rotav1.SnapshotState_SNAPSHOT_STATE_FAILED}}}, nil
}

func (c *cluster) DeleteSnapshot(context.Context, *rotav1.DeleteSnapshotRequest) (*rotav1.DeleteSnapshotResponse, error) {
	if c.kept == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no snapshot"))
	}
	c.kept = nil
	if c.lost {
		return nil, refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", time.Millisecond)
	}
	return &rotav1.DeleteSnapshotResponse{}, nil
}

// TestDeleteSnapshot: a deletion whose answer is lost is made again, and has deleted the snapshot. One that is
// being removed was deleted before.
func TestDeleteSnapshot(t *testing.T) {
	c, server, _ := world(t)
	for lost, want := range map[bool]int{false: http.StatusNoContent, true: http.StatusNoContent} {
		c.lost, c.kept = lost, &rotav1.Snapshot{Id: 3, State: rotav1.SnapshotState_SNAPSHOT_STATE_READY}
		for _, want := range []int{want, http.StatusNotFound} {
			if got, answer, _ := call(t, "DELETE", server.URL+"/templates/rota-snapshot-3", nil); got != want {
				t.Errorf("an answer is lost: %v: %d %q, want %d", lost, got, answer, want)
			}
		}
	}
	c.kept = &rotav1.Snapshot{Id: 3, State: rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING}
	if got, answer, _ := call(t, "DELETE", server.URL+"/templates/rota-snapshot-3", nil); got != http.StatusNotFound || c.kept == nil {
		t.Errorf("deleted twice: %d %q", got, answer)
	}
}

// TestSnapshots makes, lists and deletes a snapshot, and creates a sandbox that begins with it.
func TestSnapshots(t *testing.T) {
	c, server, _ := world(t)
	expect := func(method, path, body string, status int, says string) {
		t.Helper()
		got, answer, _ := call(t, method, server.URL+path, strings.NewReader(body), "Content-Type", "application/json")
		if got != status || !strings.Contains(answer, says) {
			t.Errorf("%s %s %s: %d %q, want %d with %q", method, path, body, got, answer, status, says)
		}
	}
	const made = `"snapshotID":"rota-snapshot-3","names":["base"]`
	expect("POST", "/sandboxes/t7/snapshots", `{"name":"bad"}`, http.StatusInternalServerError, "the disk is full")
	expect("POST", "/sandboxes/t9/snapshots", `{}`, http.StatusNotFound, "no sandbox")
	expect("POST", "/sandboxes/t7/snapshots", `{"name":"base"}`, http.StatusCreated, made)
	expect("GET", "/snapshots?sandboxID=t7", "", http.StatusOK, "[{"+made+"}]")
	expect("GET", "/snapshots?name=other", "", http.StatusOK, "[]")
	expect("GET", "/snapshots?sandboxID=x", "", http.StatusNotFound, "no sandbox")
	expect("GET", "/snapshots?limit=0", "", http.StatusBadRequest, "limit")
	expect("POST", "/sandboxes", `{"templateID":"rota-snapshot-3","timeout":60}`, http.StatusCreated, "sandboxID")
	if c.opened.GetSnapshotId() != 3 || c.opened.Pool != "" || c.opened.MemoryBytes == 0 {
		t.Errorf("opened %v", c.opened)
	}
	expect("DELETE", "/templates/rota-snapshot-3", "", http.StatusNoContent, "")
	expect("DELETE", "/templates/rota-snapshot-3", "", http.StatusNotFound, "no snapshot")
	expect("POST", "/sandboxes", `{"templateID":"rota-snapshot-3","timeout":60}`, http.StatusNotFound, "no snapshot")
	expect("POST", "/sandboxes", `{"templateID":"rota-snapshot-03","timeout":60}`, http.StatusNotFound, "no template")
}
