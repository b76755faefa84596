package lease

import (
	"sync"
	"time"
)

// patienceMin keeps a small margin from taking a busy machine for a frozen one.
const patienceMin = 200 * time.Millisecond

// Lease is the lease of one node. Times are nanoseconds of the clock that it was
// made with. Its methods may be called concurrently.
type Lease struct {
	now func() int64

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	duration time.Duration
	margin   time.Duration
	deadline int64 // 0: none yet
	lost     bool  // until Begin
}

// New returns a lease that allows nothing yet. The clock never goes back and
// goes on while the machine sleeps.
func New(now func() int64) *Lease { return &Lease{now: now, changed: make(chan struct{})} }

// Begin starts anew without a deadline, by the terms of a registration.
func (l *Lease) Begin(duration, margin time.Duration) {
	l.update(func() { l.duration, l.margin, l.deadline, l.lost = duration, margin, 0, false })
}

// End gives the lease up.
func (l *Lease) End() {
	l.update(func() { l.lost = true })
}

// Extend counts a renewal that was sent at the given time. A lease that has
// ended stays so: what it allowed is being killed.
func (l *Lease) Extend(sent int64) {
	l.update(func() {
		if l.expired() {
			l.lost = true
			return
		}
		l.deadline = max(l.deadline, sent+int64(l.duration-l.margin))
	})
}

// Now is the time by the lease's clock, for Extend.
func (l *Lease) Now() int64 { return l.now() }

// Expired says that there was a lease, and there is none now.
func (l *Lease) Expired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expired()
}

func (l *Lease) expired() bool { return l.lost || l.deadline != 0 && l.now() >= l.deadline }

// Held returns the deadline until which attempts may run, 0 if they may not.
func (l *Lease) Held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expired() {
		return 0
	}
	return l.deadline
}

// Deadline is when the lease ends or ended, 0 before the first renewal.
func (l *Lease) Deadline() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Duration is the whole of the lease, by the terms of the registration.
func (l *Lease) Duration() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.duration
}

// Patience is how long the supervisor gets to kill what must die: a part of
// the margin, so that there is time for another way.
func (l *Lease) Patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.margin/3, patienceMin)
}

// Changed returns a channel that is closed at the next call that changes the
// lease. That time passes is no change.
func (l *Lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *Lease) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}
