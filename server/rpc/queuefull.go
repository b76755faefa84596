package rpc

import (
	"time"

	"connectrpc.com/connect"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// queueFullRetry is the delay of a refusal if nothing is known of when the queue has room.
const queueFullRetry = time.Second

// refuseFull refuses a submission for which the queue has no room, as far as this server has applied
// the log; nil: it is to be proposed. The state machine decides the same, but there a refusal costs
// as much as a submission, and under overload most of them are refusals.
//
// A submission whose request ID is known is proposed: it was accepted before. One that a server
// refuses because it is behind is refused for a moment only.
func (s *Server) refuseFull(command *logv1.Command) error {
	c := command.GetSubmitActions()
	var f *failure
	s.Machine.View(func(st *state.State) {
		if id := c.GetRequest().GetId(); id != "" && st.Request(id) != nil || st.Meta().ClusterID == "" {
			return // it was accepted before; or there are no limits yet
		}
		bytes := st.QueuedBytes()
		for _, a := range c.Actions {
			bytes += uint64(len(a.Spec))
		}
		limits, queued := &st.Meta().Settings, st.Counts().Queued
		if queued+len(c.Actions) > int(limits.QueueActionsMax) || bytes > limits.QueueBytesMax {
			f = failed(connect.CodeResourceExhausted, "QUEUE_FULL",
				"the queue holds %d actions (limits: %d actions, %d bytes); submit more when some have started", queued, limits.QueueActionsMax, limits.QueueBytesMax)
		}
	})
	if f == nil {
		return nil
	}
	f.retry = queueFullRetry
	return s.untilRoom(f)
}
