package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Bounds of a watch.
const (
	// watchBatch is how many events travel in one message, watchScan how many are
	// looked at under one view.
	watchBatch = 256
	watchScan  = 2048
	// progressInterval is how often a watcher that sees no events is told how far
	// it has come.
	progressInterval = 5 * time.Second
)

// allNamespaces is the name that stands for all of them in a watch.
const allNamespaces = "*"

// WatchActions streams events from this server's own state. It holds nothing
// while it sends, so a slow watcher delays no others; one that is too slow for the
// ring of kept events is told to list again.
func (s *Server) WatchActions(ctx context.Context, req *rotav1.WatchActionsRequest, stream *connect.ServerStream[rotav1.WatchActionsResponse]) error {
	w, err := s.newWatch(ctx, req)
	if err != nil {
		return err
	}
	subscriber := s.Events.join(req.ActionId)
	defer s.Events.leave(subscriber)
	progress := time.NewTicker(progressInterval)
	defer progress.Stop()

	told, due := uint64(0), true // the watcher learns at once where it is
	for {
		events, more, err := w.read(s.Machine)
		if err != nil {
			return err
		}
		if len(events) > 0 || due && w.position >= told {
			if err := stream.Send(&rotav1.WatchActionsResponse{Events: events, Revision: w.position}); err != nil {
				return err
			}
			told, due = w.position+1, false
		}
		if more {
			continue
		}
		select {
		case <-subscriber.wake:
		case <-progress.C:
			due = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watch is a filter and how far it has read.
type watch struct {
	namespace  state.NamespaceID // 0: all
	action     state.ActionID
	trajectory state.TrajectoryID
	position   uint64 // revision
}

// newWatch checks a request and finds where it begins.
func (s *Server) newWatch(ctx context.Context, req *rotav1.WatchActionsRequest) (*watch, error) {
	w := &watch{
		action:     state.ActionID(req.ActionId),
		trajectory: state.TrajectoryID(req.TrajectoryId),
		position:   req.GetAfterRevision(),
	}
	if req.Namespace != allNamespaces {
		if err := checkName("namespace", req.Namespace).err(); err != nil {
			return nil, err
		}
	}
	// A watch may begin where another server is and this one is not yet. And
	// "from now on" must not begin before what its caller already knows.
	if req.AfterRevision == nil || w.position > s.revision() {
		if err := s.catchUp(ctx, false); err != nil {
			return nil, err
		}
	}
	revision := s.revision()
	if req.AfterRevision == nil {
		w.position = revision
	}
	if w.position > revision {
		f := failed(connect.CodeOutOfRange, "REVISION_UNKNOWN",
			"revision %d is from another cluster, this one is at %d: list again and watch from there", w.position, revision)
		f.revision = revision
		return nil, f
	}
	if err := s.checkWatched(ctx, w); err != nil {
		return nil, err
	}
	if req.Namespace == allNamespaces {
		return w, nil
	}
	var err error
	s.Machine.View(func(st *state.State) { w.namespace, err = namespaceID(st, req.Namespace) })
	return w, err
}

// checkWatched refuses a watch of an action or a trajectory that has never been: it would
// wait for ever. One that this server does not know may be new.
func (s *Server) checkWatched(ctx context.Context, w *watch) error {
	missing := func() (err error) {
		s.Machine.View(func(st *state.State) {
			switch m := st.Meta(); {
			case w.action > m.LastAction:
				err = notFound("ACTION_NOT_FOUND", "there is no action %d: correct the ID", w.action)
			case w.trajectory > m.LastTrajectory:
				err = notFound("TRAJECTORY_NOT_FOUND", "there is no trajectory %d: correct the ID", w.trajectory)
			}
		})
		return err
	}
	if missing() == nil {
		return nil
	}
	if err := s.catchUp(ctx, false); err != nil {
		return err
	}
	return missing()
}

func (s *Server) revision() (r uint64) {
	s.Machine.View(func(st *state.State) { r = st.Meta().Revision })
	return r
}

// read returns the next events that match and moves the position past what was
// looked at. more says that it stopped before the newest event.
func (w *watch) read(machine Machine) (events []*rotav1.ActionEvent, more bool, err error) {
	machine.View(func(st *state.State) {
		newest := st.Meta().Revision
		if w.action != 0 {
			// The row knows its newest event: most often there is none to look for.
			if a := st.Action(w.action); a != nil && a.Revision <= w.position {
				w.position = newest
				return
			}
		}
		if w.position+1 < st.FirstRevision() {
			err = tooOld(w.position, st)
			return
		}
		to := min(newest, w.position+watchScan)
		for w.position < to && len(events) < watchBatch {
			e, _ := st.Event(w.position + 1)
			w.position++
			if w.matches(&e) {
				events = append(events, eventMessage(st, e))
			}
		}
		more = w.position < newest
	})
	return events, more, err
}

func (w *watch) matches(e *state.Event) bool {
	return e.Kind == state.EventAction &&
		(w.namespace == 0 || e.Namespace == w.namespace) &&
		(w.action == 0 || e.Subject == uint64(w.action)) &&
		(w.trajectory == 0 || e.Trajectory == w.trajectory)
}

func tooOld(position uint64, st *state.State) error {
	f := failed(connect.CodeOutOfRange, "REVISION_TOO_OLD",
		"events after revision %d are no longer kept, the oldest is %d: list again and watch from revision %d",
		position, st.FirstRevision(), st.Meta().Revision)
	f.revision = st.Meta().Revision
	return f
}
