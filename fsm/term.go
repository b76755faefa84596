package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// ReasonOtherTerm is why every command of an entry is refused that Raft has
// appended in another term than the entry was stamped in.
const ReasonOtherTerm = "OTHER_TERM"

// overtaken says whether the leadership that stamped an entry was over when Raft
// appended it. Such a leader knew neither the log time nor the leases that another
// leader has given since: its proposal to expire a node may be older than the
// node's newest lease.
func overtaken(e *logv1.Entry, term uint64) bool { return e.Term != 0 && e.Term != term }

// passOver applies nothing of an entry but its index, and refuses its commands.
func passOver(s *state.State, index uint64, e *logv1.Entry) []*logv1.Result {
	m := *s.Meta()
	m.Applied = index
	s.SetMeta(m)
	results := make([]*logv1.Result, len(e.Commands))
	for i := range results {
		results[i] = retryAfter(refuse(codeUnavailable, ReasonOtherTerm,
			"the leader changed before the command reached the log, and nothing of it was done; try again"), 10_000_000)
		results[i].Index = index
	}
	return results
}
