package quorum

// callsMax is how many calls for an index are on their way to the leader: a second call
// may leave while the first is on its way.
const callsMax = 2

// Readers gathers the reads of a server that does not lead. It asks the leader for an
// index. The answer serves the readers that came before the call left, and no later one.
type Readers[C any] struct {
	waiting []C
	calls   int
}

// Join adds a reader.
func (r *Readers[C]) Join(reader C) { r.waiting = append(r.waiting, reader) }

// Call returns the readers of a call that leaves now. It is empty if no reader waits, or
// if enough calls are on their way. Returned ends the call.
func (r *Readers[C]) Call() (readers []C) {
	if len(r.waiting) == 0 || r.calls == callsMax {
		return nil
	}
	readers, r.waiting = r.waiting, nil
	r.calls++
	return readers
}

// Returned notes that a call is over, whatever came of it.
func (r *Readers[C]) Returned() { r.calls-- }
