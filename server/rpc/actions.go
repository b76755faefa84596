package rpc

import (
	"context"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// GetAction returns one action.
func (s *Server) GetAction(ctx context.Context, req *rotav1.GetActionRequest) (*rotav1.GetActionResponse, error) {
	if err := requireID("id", req.Id).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	row, revision, err := s.action(state.ActionID(req.Id))
	if err != nil {
		return nil, err
	}
	m, err := row.message()
	return &rotav1.GetActionResponse{Action: m, Revision: revision}, err
}

// action reads one action from this server's state.
func (s *Server) action(id state.ActionID) (row actionRow, revision uint64, err error) {
	now := s.LogTime()
	s.Machine.View(func(st *state.State) {
		a := st.Action(id)
		if a == nil {
			err = actionNotFound(st, id)
			return
		}
		row, revision = readAction(st, a), st.Meta().Revision
		switch a.State {
		case state.ActionQueued:
			row.waitingFor = s.Explain(st, a, now)
			row.estimate = s.EstimateStarts(st, []*state.Action{a}, now)[0].message()
		case state.ActionRunning:
			row.coresReason = s.Explain(st, a, now)
		}
	})
	return row, revision, err
}

func actionNotFound(st *state.State, id state.ActionID) error {
	if id <= st.Meta().LastAction {
		return notFound("ACTION_NOT_FOUND", "action %d has ended and is no longer kept: read results within the retention time", id)
	}
	return notFound("ACTION_NOT_FOUND", "there is no action %d: correct the ID", id)
}

// CancelActions ends actions.
func (s *Server) CancelActions(ctx context.Context, req *rotav1.CancelActionsRequest) (*rotav1.CancelActionsResponse, error) {
	if err := checkCount("ids", "ID", len(req.Ids), actionsMax).err(); err != nil {
		return nil, err
	}
	for _, id := range req.Ids {
		if err := requireID("ids", id).err(); err != nil {
			return nil, err
		}
	}
	result, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_CancelActions{
		CancelActions: &logv1.CancelActions{Ids: req.Ids},
	}})
	if err != nil {
		return nil, err
	}
	return &rotav1.CancelActionsResponse{Canceled: result.Count}, nil
}
