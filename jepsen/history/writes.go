package history

// Writes reports whether a call that succeeded has committed something.
func (op *Op) Writes() bool {
	switch op.Verb {
	case Submit, Cancel, OpenTrajectory, CloseTrajectory, Drain:
		return true
	}
	return false
}

// FirstWrite is the end of the first write that began at a time or later and was acknowledged; 0:
// there is none.
func FirstWrite(ops []Op, from int64) (first int64) {
	for i := range ops {
		if op := &ops[i]; op.Start >= from && op.Outcome == OK && op.Writes() && (first == 0 || op.End < first) {
			first = op.End
		}
	}
	return first
}
