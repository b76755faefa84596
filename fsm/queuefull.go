package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// QueueFull refuses a submission to a namespace for which the queue has no room; nil: there is room. A
// server asks it before it proposes a submission too: in the log a refusal costs as much as a
// submission, and under overload most of them are refusals. The namespace is nil if it is not known yet.
func QueueFull(v *state.State, ns *state.Namespace, actions []*logv1.Action) *logv1.Refusal {
	bytes, queued := v.QueuedBytes(), v.Counts().Queued
	own := uint64(0)
	for _, a := range actions {
		own += uint64(len(a.Spec))
	}
	s, refuses := &v.Meta().Settings, v.Meta().Level >= state.LevelResizing
	switch {
	case refuses && (len(actions) > int(s.QueueActionsMax) || own > s.QueueBytesMax):
		return tooLarge("the submission has %d actions of %d bytes, and the queue may have %d actions of %d bytes: submit fewer at once",
			len(actions), own, s.QueueActionsMax, s.QueueBytesMax)
	case queued+len(actions) > int(s.QueueActionsMax) || bytes+own > s.QueueBytesMax:
		return fullFor("QUEUE_FULL", "the queue holds %d actions of %d bytes (limits: %d actions, %d bytes); submit more when some have started",
			queued, bytes, s.QueueActionsMax, s.QueueBytesMax)
	}
	if ns == nil || !v.AnySettings() {
		return nil
	}
	has, most := v.NamespaceQueued(ns.ID), v.SettingsOf(ns.ID).QueuedMax
	if refuses && most > 0 && len(actions) > int(most) {
		return tooLarge("the submission has %d actions, and namespace %q may have %d queued: submit fewer at once, or "+raiseLimit+" %s --max-queued N",
			len(actions), ns.Name, most, ns.Name)
	}
	if most > 0 && has+len(actions) > int(most) {
		return fullFor("NAMESPACE_QUEUE_FULL",
			"namespace %q has %d queued actions, and may have %d; submit more when some have started, or ask an operator to run: rota operator namespace set %s --max-queued N",
			ns.Name, has, most, ns.Name)
	}
	return nil
}

// tooLarge refuses a submission for which there will never be room.
func tooLarge(format string, args ...any) *logv1.Refusal {
	return refuse(codeInvalidArgument, "UNSATISFIABLE", format, args...).Refusal
}

// fullFor refuses for a while: a second, until the server knows better.
func fullFor(reason, format string, args ...any) *logv1.Refusal {
	const wait = 1_000_000_000
	return retryAfter(refuse(codeResourceExhausted, reason, format, args...), wait).Refusal
}
