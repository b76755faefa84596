package rpc

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// refuseFull refuses a submission for which the queue has no room, as far as this server has applied
// the log; nil: it is to be proposed. The state machine decides the same.
//
// A submission whose request ID is known is proposed: it was accepted before. One that a server
// refuses because it is behind is refused for a moment only.
func (s *Server) refuseFull(command *logv1.Command) error {
	c := command.GetSubmitActions()
	var r *logv1.Refusal
	s.Machine.View(func(st *state.State) {
		if id := c.GetRequest().GetId(); id != "" && st.Request(id) != nil || st.Meta().ClusterID == "" {
			return // it was accepted before; or there are no limits yet
		}
		r = fsm.QueueFull(st, st.NamespaceByName(c.Namespace), c.Actions)
	})
	if r == nil {
		return nil
	}
	return s.untilRoom(refused(r))
}
