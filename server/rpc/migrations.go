package rpc

import (
	"cmp"
	"context"
	"fmt"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/fsm"
	"rota/fsm/state"
)

// RequestMigration queues a migration.
func (s *Server) RequestMigration(ctx context.Context, req *rotav1.RequestMigrationRequest) (*rotav1.RequestMigrationResponse, error) {
	if err := checkMigration(req).err(); err != nil {
		return nil, err
	}
	if c := callerOf(ctx); req.Selector != nil && c != nil && !c.may.Allows("migration", rights.Submit, "") {
		return nil, failed(connect.CodePermissionDenied, "RIGHT_MISSING",
			"a selector finds caches of all namespaces, so it needs migration submit under: in *; without one, the caches of the trajectory are copied")
	}
	selector := req.Selector
	if selector == nil {
		selector = &rotav1.MigrationSelector{Tag: fmt.Sprintf("trajectory%%%d", req.TrajectoryId)}
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(selector)
	if err != nil {
		return nil, fmt.Errorf("encode the selector: %w", err)
	}
	c := &logv1.RequestMigration{
		Namespace: orDefault(req.Namespace), TrajectoryId: req.TrajectoryId, Source: req.Source, Target: req.Target,
		Selector: encoded, Length: req.Length,
		QueueTimeoutNs: int64(req.QueueTimeout.AsDuration()), RunTimeoutNs: int64(req.RunTimeout.AsDuration()),
	}
	c.Request = request(req.RequestId, req.ExpireTime, func(d *xxhash.Digest) {
		for _, text := range []string{c.Namespace, c.Source, c.Target, string(c.Selector)} {
			digestText(d, text)
		}
		for _, n := range []uint64{c.TrajectoryId, c.Length, uint64(c.QueueTimeoutNs), uint64(c.RunTimeoutNs)} {
			digestNumber(d, n)
		}
	})
	result, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_RequestMigration{RequestMigration: c}})
	if err != nil {
		return nil, err
	}
	return &rotav1.RequestMigrationResponse{Id: result.FirstId, Replayed: result.Replayed}, nil
}

// GetMigration returns a migration, and what it waits for.
func (s *Server) GetMigration(ctx context.Context, req *rotav1.GetMigrationRequest) (*rotav1.GetMigrationResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	switch m := st.Migration(state.MigrationID(req.Id)); {
	case m != nil:
		message, err := migrationMessage(st, m)
		return &rotav1.GetMigrationResponse{Migration: message}, err
	case state.MigrationID(req.Id) <= st.Meta().LastMigration:
		return nil, notFound("MIGRATION_NOT_FOUND", "migration %d has ended and is no longer kept", req.Id)
	}
	return nil, notFound("MIGRATION_NOT_FOUND", "there is no migration %d: correct the ID", req.Id)
}

// ListMigrations returns a page of migrations.
func (s *Server) ListMigrations(ctx context.Context, req *rotav1.ListMigrationsRequest) (*rotav1.ListMigrationsResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 6, hashText(orDefault(req.Namespace)), digit(req.Live), hashText(req.Node), req.TrajectoryId)
	if err := firstOf(checkName("namespace", req.Namespace), checkName("node", req.Node), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	namespace, err := namespaceID(st, req.Namespace)
	if err != nil {
		return nil, err
	}
	var node state.NodeID
	if n := st.NodeByName(req.Node); n != nil {
		node = n.ID
	} else if req.Node != "" {
		return nil, notFound("NODE_NOT_FOUND", "there is no node %q: ListNodes has those that are registered", req.Node)
	}
	resp := &rotav1.ListMigrationsResponse{}
	c := &collector{page: p}
	st.Migrations(state.MigrationID(p.after), func(m *state.Migration) bool {
		return c.visit(uint64(m.ID), func() proto.Message {
			if m.Namespace != namespace || req.Live && m.State.Final() || node != 0 && !m.On(node) ||
				req.TrajectoryId != 0 && m.Trajectory != state.TrajectoryID(req.TrajectoryId) || err != nil {
				return nil
			}
			var message *rotav1.Migration
			message, err = migrationMessage(st, m)
			return appendRow(&resp.Migrations, message)
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, err
}

// CancelMigration ends a migration.
func (s *Server) CancelMigration(ctx context.Context, req *rotav1.CancelMigrationRequest) (*rotav1.CancelMigrationResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	_, err := s.change(ctx, &logv1.Command{Verb: &logv1.Command_CancelMigration{CancelMigration: &logv1.CancelMigration{Id: req.Id}}})
	return &rotav1.CancelMigrationResponse{}, err
}

// ReportMigrations commits how transfers to a node ended.
func (s *Server) ReportMigrations(ctx context.Context, req *rotav1.ReportMigrationsRequest) (*rotav1.ReportMigrationsResponse, error) {
	if err := checkMigrationReports(req).err(); err != nil {
		return nil, err
	}
	if err := s.checkNode(ctx, req.Name); err != nil {
		return nil, err
	}
	c := &logv1.ReportMigrations{Node: req.Name, Incarnation: req.Incarnation}
	for _, r := range req.Reports {
		p := r.GetProgress()
		c.Reports = append(c.Reports, &logv1.MigrationReport{
			MigrationId: r.MigrationId, Done: r.Done, Message: sentence(r.Message, state.MigrationMessageBytesMax),
			Values: p.GetValues(), TotalBytes: p.GetTotalBytes(), MovedBytes: p.GetMovedBytes(), PresentBytes: p.GetPresentBytes(),
		})
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_ReportMigrations{ReportMigrations: c}})
	return &rotav1.ReportMigrationsResponse{}, err
}

func migrationMessage(st *state.State, m *state.Migration) (*rotav1.Migration, error) {
	wall := wallOf(st)
	out := &rotav1.Migration{
		Id: uint64(m.ID), TrajectoryId: uint64(m.Trajectory), Length: m.Length,
		Source: endName(st, m.Source), Target: endName(st, m.Target),
		QueueTimeout: duration(m.QueueTimeoutNS), RunTimeout: duration(m.RunTimeoutNS),
		State: rotav1.MigrationState(m.State), Reason: rotav1.MigrationReason(m.Reason), Message: m.Message,
		RequestTime: wall.timestamp(m.RequestedAt), StartTime: wall.timestamp(m.StartedAt), EndTime: wall.timestamp(m.EndedAt),
		Progress: &rotav1.MigrationProgress{
			Values: m.Progress.Values, TotalBytes: m.Progress.Total, MovedBytes: m.Progress.Moved, PresentBytes: m.Progress.Present,
		},
	}
	if ns := st.Namespace(m.Namespace); ns != nil {
		out.Namespace = ns.Name
	}
	if w := fsm.MigrationWaits(st, m); w.Obstacle != 0 {
		out.Wait = &rotav1.MigrationWait{Obstacle: rotav1.MigrationObstacle(w.Obstacle), Node: nodeName(st, w.Node), MigrationId: uint64(w.Migration)}
	}
	if len(m.Selector) == 0 {
		return out, nil
	}
	out.Selector = new(rotav1.MigrationSelector)
	if err := out.Selector.UnmarshalVT(m.Selector); err != nil {
		return nil, fmt.Errorf("decode the selector of migration %d: %w", m.ID, err)
	}
	return out, nil
}

// endName is the name of a node of a migration, which may have been removed since.
func endName(st *state.State, id state.NodeID) string {
	return cmp.Or(nodeName(st, id), fmt.Sprintf("node %d (removed)", id))
}
