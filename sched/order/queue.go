package order

import "rota/fsm/state"

// Queue is what this package needs to see of the state.
type Queue interface {
	// Queued visits the actions in a queue from one on, oldest first.
	Queued(key state.Queue, from state.ActionID, fn func(state.ActionID) bool)
}

// Oldest returns up to n actions that wait in a queue, oldest first, beginning with
// the first that is younger than after.
func Oldest(q Queue, key state.Queue, after state.ActionID, n int) []state.ActionID {
	out := make([]state.ActionID, 0, n)
	q.Queued(key, after+1, func(id state.ActionID) bool {
		out = append(out, id)
		return len(out) < n
	})
	return out
}

// MayBypass reports whether a younger action may start before a, which is at
// the head and does not fit. The bounds are in the settings; now is log time.
func MayBypass(a *state.Action, now int64, s *state.Settings) bool {
	return a.Bypassed == 0 || (a.Bypassed < s.BypassMax && now-a.BlockedAt < s.BypassNSMax)
}
