package order

import "rota/fsm/state"

// Queue is what this package needs to see of the state.
type Queue interface {
	NextQueued(state.Instance, state.NamespaceID, state.ActionID) (state.NamespaceID, state.ActionID, bool)
}

// Oldest returns up to n actions that wait in any of the instances, oldest
// first, beginning with the first that is younger than after.
func Oldest(q Queue, instances []state.Instance, after state.ActionID, n int) []state.ActionID {
	out := make([]state.ActionID, 0, n)
	for _, i := range instances {
		ns, id, ok := q.NextQueued(i, 0, after+1)
		for ok {
			if id <= after { // the first of the next namespace may be too old
				ns, id, ok = q.NextQueued(i, ns, after+1)
				continue
			}
			if !insert(&out, id, n) { // the rest of this namespace is younger still
				ns, id, ok = q.NextQueued(i, ns+1, after+1)
				continue
			}
			ns, id, ok = q.NextQueued(i, ns, id+1)
		}
	}
	return out
}

// insert puts id into an ascending list of at most n and reports whether it
// found a place.
func insert(list *[]state.ActionID, id state.ActionID, n int) bool {
	l := *list
	if len(l) == n {
		if id > l[n-1] {
			return false
		}
		l = l[:n-1]
	}
	i := len(l)
	for i > 0 && l[i-1] > id {
		i--
	}
	l = append(l, 0)
	copy(l[i+1:], l[i:])
	l[i] = id
	*list = l
	return true
}

// MayBypass reports whether a younger action may start before a, which is at
// the head and does not fit. The bounds are in the settings; now is log time.
func MayBypass(a *state.Action, now int64, s *state.Settings) bool {
	return a.Bypassed == 0 || (a.Bypassed < s.BypassMax && now-a.BlockedAt < s.BypassNSMax)
}
