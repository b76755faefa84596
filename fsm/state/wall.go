package state

const (
	// wallJumpNS is by how much wall time has to leave log time for that to be recorded.
	wallJumpNS = 1_000_000_000
	// wallMarksMax bounds what is remembered of that.
	wallMarksMax = 64
)

// WallMark says how far wall time was ahead of log time, from a log time on.
type WallMark struct{ At, AheadNS int64 }

// WallMarks translate log time, which stands still while there is no leader, into the
// wall time that people read. A mark is added when the two have come apart by a second,
// so that a time that was shown once does not move. Nothing is decided by them.
type WallMarks []WallMark

// Wall returns the wall time of a log time, in nanoseconds since the Unix epoch, to
// within a second and the error of the leader's clock.
func (w WallMarks) Wall(ns int64) int64 {
	for i := len(w) - 1; i >= 0; i-- {
		if ns >= w[i].At {
			return ns + w[i].AheadNS
		}
	}
	return ns
}

// note returns the marks after an entry that moved log time from one value to another,
// when the leader's wall clock showed wall; 0: it is not known. It leaves w as it is,
// since copies of a state share it.
func (w WallMarks) note(from, to, wall int64) WallMarks {
	if wall == 0 || to <= from { // what happened at from keeps its wall time
		return w
	}
	if apart := wall - w.Wall(to); apart > -wallJumpNS && apart < wallJumpNS {
		return w
	}
	next := make(WallMarks, 0, len(w)+1)
	for i, m := range w {
		if i == 0 && len(w) >= wallMarksMax {
			continue
		}
		if i == 1 && len(next) == 0 {
			m.At = w[0].At // the oldest two become one
		}
		next = append(next, m)
	}
	return append(next, WallMark{to, wall - to})
}

// Advance moves log time to that of an entry, never back.
func (r *Meta) Advance(ns, wall int64) {
	to := max(r.Now, ns)
	r.Wall = r.Wall.note(r.Now, to, wall)
	r.Now = to
}
