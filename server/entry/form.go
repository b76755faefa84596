package entry

import logv1 "rota/api/gen/log/v1"

// WallFloor is 2020-01-01 in nanoseconds. Log time below it never came from a wall clock:
// the cluster has no time yet.
const WallFloor = 1_577_836_800_000_000_000

// Stamp puts the log time and the term of one leadership on entries. Log time is the
// newest committed time when the leader became ready, plus what has passed since on its
// monotonic clock. Clocks of different machines are never compared.
type Stamp struct {
	term uint64
	// anchor is the log time at which the leadership began, last that of the newest entry.
	anchor, last int64
}

// NewStamp begins the leadership of a term. committed is the newest committed log time.
func NewStamp(term uint64, committed int64) *Stamp { return &Stamp{term: term, anchor: committed} }

// Moment is what a leader knows of time when it forms an entry, in nanoseconds.
type Moment struct {
	// Elapsed is how long the leadership has lasted, on the leader's monotonic clock.
	Elapsed int64
	// Committed is the newest committed log time.
	Committed int64
	// Wall is what the leader's wall clock shows; 0 if it was never set. It is for people,
	// and for the entry that founds a cluster.
	Wall int64
}

// Form makes the entry of a batch. It returns nil if another leadership accepted the
// batch: none of it may be committed now, because what that leadership knew may no longer
// hold. The entry names the term, so that the state machine refuses it if Raft appends it
// in a later one.
func Form[C any](b Batch[C], s *Stamp, m Moment) *logv1.Entry {
	if b[0].Term != s.term {
		return nil
	}
	commands := b.Commands()
	return &logv1.Entry{Commands: commands, Term: s.term, TimeNs: s.time(commands, m), WallNs: m.Wall}
}

// time returns the log time of the next entry. A cluster that has no time yet takes the
// leader's wall clock, once: with the command that founds it.
func (s *Stamp) time(commands []*logv1.Command, m Moment) int64 {
	if s.anchor < WallFloor && founds(commands) {
		s.anchor = m.Wall - m.Elapsed
	}
	t := s.anchor + m.Elapsed
	s.last = max(t, s.last, m.Committed)
	return s.last
}

func founds(commands []*logv1.Command) bool {
	for _, c := range commands {
		if _, ok := c.Verb.(*logv1.Command_Bootstrap); ok {
			return true
		}
	}
	return false
}
