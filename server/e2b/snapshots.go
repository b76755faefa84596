package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// snapshotPrefix is before the number of a snapshot, so that its ID is no name of a template.
	snapshotPrefix = "rota-snapshot-"
	// snapshotTimeout is how long a new snapshot may take: SDKs give a request a minute.
	snapshotTimeout = 50 * time.Second
)

// snapshotInfo is a snapshot in E2B's words.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func newSnapshotInfo(s *rotav1.Snapshot) snapshotInfo {
	out := snapshotInfo{snapshotPrefix + strconv.FormatUint(s.GetId(), 10), []string{}}
	if s.GetName() != "" {
		out.Names = append(out.Names, s.GetName())
	}
	return out
}

// snapshotOf is the number in the ID of a snapshot.
func snapshotOf(id string) (uint64, bool) {
	digits, ok := strings.CutPrefix(id, snapshotPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && n != 0 && strconv.FormatUint(n, 10) == digits
}

// createSnapshot keeps the files of a sandbox, in which no process may run, and answers when new
// sandboxes can begin with them.
func (e *E2B) createSnapshot(r *http.Request, a api) (int, any, error) {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(r, &body); err != nil {
		return 0, nil, err
	}
	t, err := of(r, a)
	if err != nil {
		return 0, nil, err
	}
	resp, err := a.snapshots.CreateSnapshot(r.Context(), &rotav1.CreateSnapshotRequest{
		RequestId: "e2b-" + rand.Text(), TrajectoryId: t.Id, Name: body.Name,
	})
	if err != nil {
		return 0, nil, err
	}
	s, err := taken(r.Context(), a, resp.Snapshot)
	return http.StatusCreated, newSnapshotInfo(s), err
}

// taken waits until a snapshot is ready.
func taken(ctx context.Context, a api, s *rotav1.Snapshot) (*rotav1.Snapshot, error) {
	waiting, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		resp, err := a.snapshots.GetSnapshot(waiting, &rotav1.GetSnapshotRequest{Id: s.GetId()})
		switch {
		case waiting.Err() != nil:
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("the snapshot is still being taken: it is listed when it is ready"))
		case err != nil:
			return nil, err
		}
		switch s = resp.Snapshot; s.GetState() {
		case rotav1.SnapshotState_SNAPSHOT_STATE_READY:
			return s, nil
		case rotav1.SnapshotState_SNAPSHOT_STATE_CREATING:
		default:
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("snapshot %d could not be taken: %s", s.GetId(), s.GetMessage()))
		}
		select {
		case <-time.After(pause):
		case <-waiting.Done():
		}
	}
}

// listSnapshots pages through the snapshots of a namespace that sandboxes can begin with.
func (e *E2B) listSnapshots(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err := limitIn(query)
	req := &rotav1.ListSnapshotsRequest{Namespace: r.Header.Get(namespaceHeader), PageSize: limit, PageToken: query.Get("nextToken")}
	if id := query.Get("sandboxID"); id != "" && err == nil {
		var ok bool
		if req.TrajectoryId, ok = trajectoryOf(id); !ok {
			err = notFound(id)
		}
	}
	if err != nil {
		failWith(w, err)
		return
	}
	resp, err := e.apiFor(r, r.Header.Get(keyHeader)).snapshots.ListSnapshots(r.Context(), req)
	if err != nil {
		failWith(w, err)
		return
	}
	page := []snapshotInfo{}
	for _, s := range resp.Snapshots {
		if name := query.Get("name"); s.State == rotav1.SnapshotState_SNAPSHOT_STATE_READY && (name == "" || name == s.Name) {
			page = append(page, newSnapshotInfo(s)) // a page may have fewer than were asked for
		}
	}
	if resp.NextPageToken != "" {
		w.Header().Set("X-Next-Token", resp.NextPageToken)
	}
	answer(w, http.StatusOK, page)
}

// deleteSnapshot deletes a snapshot, which SDKs call a template then. One that was deleted before gets 404,
// which the SDK tells its caller as false. One that was there when the request arrived does not: its deletion
// may have been asked of the cluster twice, after an answer that was lost.
func (e *E2B) deleteSnapshot(r *http.Request, a api) (int, any, error) {
	id, ok := snapshotOf(r.PathValue("id"))
	if !ok {
		return 0, nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no snapshot %.100q; templates are listed by an operator", r.PathValue("id")))
	}
	before, err := a.snapshots.GetSnapshot(r.Context(), &rotav1.GetSnapshotRequest{Id: id})
	switch {
	case err == nil && before.Snapshot.GetState() == rotav1.SnapshotState_SNAPSHOT_STATE_REMOVING:
		return 0, nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("snapshot %s was deleted before", r.PathValue("id")))
	case err != nil && connect.CodeOf(err) != connect.CodePermissionDenied: // it takes another right to delete
		return 0, nil, err
	}
	known := err == nil
	_, err = a.snapshots.DeleteSnapshot(r.Context(), &rotav1.DeleteSnapshotRequest{Id: id})
	if known && connect.CodeOf(err) == connect.CodeNotFound {
		err = nil
	}
	return http.StatusNoContent, nil, err
}

// madeOf returns what a new sandbox is made of: a template by its name, or a snapshot by its ID and the
// template of the sandbox that it was taken of.
func (e *E2B) madeOf(ctx context.Context, a api, id string) (name string, t template, snapshot uint64, err error) {
	if t, ok := e.opts.Templates[id]; ok {
		return id, t, 0, nil
	}
	snapshot, ok := snapshotOf(id)
	if !ok {
		return "", t, 0, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no template %.100q: the server's --e2b-templates names those that there are", id))
	}
	name, t = baseTemplate, e.opts.Templates[baseTemplate]
	got, err := a.snapshots.GetSnapshot(ctx, &rotav1.GetSnapshotRequest{Id: snapshot})
	if err != nil {
		return "", t, 0, err
	}
	from, err := a.trajectories.GetTrajectory(ctx, &rotav1.GetTrajectoryRequest{Id: got.Snapshot.GetTrajectoryId()})
	switch {
	case err == nil:
		if label := from.Trajectory.GetLabels()[templateLabel]; label != "" {
			name, t = label, e.opts.Templates.of(from.Trajectory)
		}
		t.MemoryBytes = from.Trajectory.GetMemoryBytes()
	case !isHidden(err): // it is forgotten in time
		return "", t, 0, err
	}
	t.complete()
	t.Pool = "" // that of the snapshot's node
	return name, t, snapshot, nil
}
