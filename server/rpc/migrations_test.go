package rpc_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func (w *world) migrations() rotav1connect.MigrationServiceClient {
	return rotav1connect.NewMigrationServiceClient(w.http, w.url, codec.ForClient())
}

// cached registers a node with a KV cache and returns the messages that its agent gets.
func (w *world) cached(name string) (*fakeAgent, <-chan *rotav1.WatchNodeResponse) {
	w.t.Helper()
	req := registration(name, name+":1")
	req.CacheBytes = 1 << 30
	return w.watching(req)
}

func (w *world) migration(id uint64) *rotav1.Migration {
	w.t.Helper()
	resp, err := w.migrations().GetMigration(w.t.Context(), &rotav1.GetMigrationRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Migration
}

// TestTheLifeOfAMigration: it waits for a tool gap, is told to both nodes, reported, listed, and
// another is canceled.
func TestTheLifeOfAMigration(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.migrations()
	_, source := w.cached("n1")
	target, told := w.cached("n2")
	trajectory, err := rotav1connect.NewTrajectoryServiceClient(w.http, w.url, codec.ForClient()).OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{})
	if err != nil {
		t.Fatal(err)
	}
	req := &rotav1.RequestMigrationRequest{
		RequestId: "r1", TrajectoryId: trajectory.Trajectory.Id, Source: "n1", Target: "n2", Length: 12, RunTimeout: durationpb.New(time.Minute),
	}
	first, err := c.RequestMigration(ctx, req)
	if err != nil || first.Replayed {
		t.Fatalf("requested %v, %v", first, err)
	}
	if again, err := c.RequestMigration(ctx, req); err != nil || !again.Replayed || again.Id != first.Id {
		t.Errorf("requested again: %v, %v", again, err)
	}
	if m := w.migration(first.Id); m.State != rotav1.MigrationState_MIGRATION_STATE_QUEUED || m.Wait.GetObstacle() != rotav1.MigrationObstacle_MIGRATION_OBSTACLE_NO_GAP ||
		m.Source != "n1" || m.Target != "n2" || m.Length != 12 || m.Selector.Tag != "trajectory%1" || m.RunTimeout.AsDuration() != time.Minute {
		t.Errorf("before an action: %v", m)
	}
	s := spec("sleep", "9")
	s.TrajectoryId = trajectory.Trajectory.Id
	w.submit(s)
	running := func(m *rotav1.WatchNodeResponse) bool { return len(m.Migrations) == 1 }
	in, out := until(t, told, "the migration", running).Migrations[0], until(t, source, "the migration", running).Migrations[0]
	if !in.Incoming || in.Peer != "n1" || in.PeerAddress != "n1:1" || in.Selector.Tag != "trajectory%1" || in.MigrationId != first.Id {
		t.Errorf("the target is told %v", in)
	}
	if out.Incoming || out.Peer != "n2" || out.MigrationId != first.Id || out.Selector.Tag != "trajectory%1" {
		t.Errorf("the source is told %v", out)
	}
	second, err := c.RequestMigration(ctx, &rotav1.RequestMigrationRequest{Source: "n2", Target: "n1", Selector: &rotav1.MigrationSelector{Prefixes: []string{"p"}}})
	if err != nil {
		t.Fatal(err)
	}
	if m := w.migration(second.Id); m.Wait.GetMigrationId() != first.Id || m.Wait.Node == "" {
		t.Errorf("the second waits for %v", m.Wait)
	}
	if _, err := w.agents().ReportMigrations(ctx, &rotav1.ReportMigrationsRequest{Name: "n2", Incarnation: target.incarnation, Reports: []*rotav1.MigrationReport{
		{MigrationId: first.Id, Message: strings.Repeat("é", 400), Progress: &rotav1.MigrationProgress{Values: 2, TotalBytes: 10, MovedBytes: 4, PresentBytes: 1}},
	}}); err != nil {
		t.Fatal(err)
	}
	if m := w.migration(first.Id); m.State != rotav1.MigrationState_MIGRATION_STATE_FAILED || m.Reason != rotav1.MigrationReason_MIGRATION_REASON_TRANSFER ||
		len(m.Message) != 512 || m.Progress.MovedBytes != 4 || m.Selector != nil || m.EndTime == nil || m.StartTime == nil {
		t.Errorf("reported as %v", m)
	}
	until(t, told, "the other migration", func(m *rotav1.WatchNodeResponse) bool { return running(m) && !m.Migrations[0].Incoming })
	if _, err := c.CancelMigration(ctx, &rotav1.CancelMigrationRequest{Id: second.Id}); err != nil {
		t.Error(err)
	}
	until(t, told, "no migration", func(m *rotav1.WatchNodeResponse) bool { return len(m.Migrations) == 0 })
	for _, l := range []struct {
		req  *rotav1.ListMigrationsRequest
		want int
	}{
		{&rotav1.ListMigrationsRequest{}, 2}, {&rotav1.ListMigrationsRequest{Live: true}, 0}, {&rotav1.ListMigrationsRequest{Node: "n1"}, 2},
		{&rotav1.ListMigrationsRequest{TrajectoryId: trajectory.Trajectory.Id}, 1},
	} {
		if list, err := c.ListMigrations(ctx, l.req); err != nil || len(list.Migrations) != l.want {
			t.Errorf("%v lists %v, %v", l.req, list, err)
		}
	}
}

func TestMigrationsAreRefusedWithWords(t *testing.T) {
	w := newWorld(t)
	w.cached("n1")
	w.cached("n2")
	prefix := &rotav1.MigrationSelector{Prefixes: []string{"p"}}
	for says, req := range map[string]*rotav1.RequestMigrationRequest{
		"source is required":           {Target: "n2", Selector: prefix},
		"must be another node":         {Source: "n1", Target: "n1", Selector: prefix},
		"selector is required without": {Source: "n1", Target: "n2"},
		"selects nothing":              {Source: "n1", Target: "n2", Selector: &rotav1.MigrationSelector{}},
		"prefixes[0] is empty":         {Source: "n1", Target: "n2", Selector: &rotav1.MigrationSelector{Prefixes: []string{""}}},
		"keys[1] is empty":             {Source: "n1", Target: "n2", Selector: &rotav1.MigrationSelector{Keys: []string{"k", ""}}},
		"must be NAME%VALUE":           {Source: "n1", Target: "n2", Selector: &rotav1.MigrationSelector{Tag: "job"}},
		"at most 65536 are allowed":    {Source: "n1", Target: "n2", Selector: &rotav1.MigrationSelector{Keys: []string{strings.Repeat("k", 65537)}}},
		"at most 24h0m0s":              {Source: "n1", Target: "n2", Selector: prefix, RunTimeout: durationpb.New(25 * time.Hour)},
		`node "n3" is not registered`:  {Source: "n1", Target: "n3", Selector: prefix},
		"trajectory 8 does not exist":  {Source: "n1", Target: "n2", TrajectoryId: 8},
	} {
		_, err := w.migrations().RequestMigration(t.Context(), req)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", req, err, says)
		}
	}
	_, err := w.migrations().GetMigration(t.Context(), &rotav1.GetMigrationRequest{Id: 5})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a migration that was never requested: %v", err)
	}
}
