package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// cancelActions ends queued actions and has running ones stopped. All IDs must
// exist; actions that have ended are left alone.
func (x *execution) cancelActions(c *logv1.CancelActions) *logv1.Result {
	for _, id := range c.Ids {
		if x.s.Action(state.ActionID(id)) == nil {
			return refuse(codeNotFound, "ACTION_NOT_FOUND", "action %d does not exist, or ended too long ago to be kept", id)
		}
	}
	n := uint32(0)
	for _, id := range c.Ids {
		if x.cancel(x.s.Action(state.ActionID(id)), state.EndCanceled) {
			n++
		}
	}
	return &logv1.Result{Count: n}
}

// cancel ends an action for a reason and reports whether that changes anything.
func (x *execution) cancel(a *state.Action, reason state.EndReason) bool {
	switch {
	case a.State == state.ActionQueued:
		x.end(a, state.ActionCanceled, &state.Result{Reason: reason})
	case a.State == state.ActionRunning && a.CancelReason == 0:
		x.stop(a, reason)
	default:
		return false
	}
	return true
}
