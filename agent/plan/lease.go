package plan

const (
	millisecond int64 = 1_000_000
	second      int64 = 1_000_000_000
	// patienceMin keeps a small margin from taking a busy machine for a frozen one.
	patienceMin = 200 * millisecond
)

// Lease is a right to run something until a deadline, by the holder's own clock. That
// clock never goes back, and goes on while the machine sleeps. Times and durations
// are nanoseconds. The zero value allows nothing.
type Lease struct {
	duration, margin int64
	deadline         int64 // 0: none yet
	lost             bool  // until Begin
}

// Begin starts again without a deadline, by the terms of a registration.
func (l *Lease) Begin(duration, margin int64) { *l = Lease{duration: duration, margin: margin} }

// End gives the lease up.
func (l *Lease) End() { l.lost = true }

// Extend counts a renewal that was sent at the given time. A lease that has
// ended stays so: what it allowed is being killed.
func (l *Lease) Extend(sent, now int64) {
	if l.Expired(now) {
		l.lost = true
		return
	}
	l.deadline = max(l.deadline, sent+l.duration-l.margin)
}

// Expired says that there was a lease, and there is none now.
func (l *Lease) Expired(now int64) bool { return l.lost || l.deadline != 0 && now >= l.deadline }

// Held returns the deadline until which attempts may run, 0 if they may not.
func (l *Lease) Held(now int64) int64 {
	if l.Expired(now) {
		return 0
	}
	return l.deadline
}

// patience is how long the supervisor gets to kill what must die: a part of the
// margin, so that there is time for another way.
func (l *Lease) patience() int64 { return max(l.margin/3, patienceMin) }
