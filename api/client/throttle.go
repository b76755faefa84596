package client

import (
	"math/rand/v2"
	"time"
)

// throttle slows down the submissions of a client whose namespace is refused more: what one
// refusal says holds for all of them. They wait here, where it costs the servers nothing, and
// travel together when the delay that the servers asked for is over. One batch is under way at a
// time, of at most limit actions:
//
//   - If a part of a batch is refused, the next one has a quarter more actions than were accepted,
//     or half as many as were sent if that is more, and is sent after the delay.
//   - If all of it is accepted, the next one has a quarter more, and is sent at once.
//
// It ends when all that waited is accepted. So a cluster that is full refuses a part of what it
// accepts, however much a client wants, and refuses many submissions in one call. The idea is that of adaptive throttling by requests and accepts (Beyer et al., Site Reliability
// Engineering, chapter 21). Submissions that wait here are not dropped: they have RetryFor.
//
// It is not safe for concurrent use.
type throttle struct {
	// limit is how many actions may be sent together; 0: the throttle is off.
	limit int
	// until is before when nothing is sent.
	until time.Time
	// refusal is what the servers said last.
	refusal error
}

// Throttled is what servers said of a batch of submissions that they refused all or a part of,
// for overload.
type Throttled struct {
	// Sent and Accepted are numbers of actions. The others wait, and are sent again.
	Sent, Accepted int
	// Delay is how long the servers asked to wait. The client waits up to half of it longer.
	Delay time.Duration
}

// on reports whether the throttle holds submissions back.
func (t *throttle) on() bool { return t.limit > 0 }

// wait is how long nothing may be sent from a time on.
func (t *throttle) wait(now time.Time) time.Duration {
	if !t.on() {
		return 0
	}
	return max(0, t.until.Sub(now))
}

// most is how many actions the next batch has at most, unless its first submission has more.
func (t *throttle) most() int {
	if !t.on() {
		return batchActionsMax
	}
	return t.limit
}

// accepted notes that a batch was accepted as a whole. Last says that nothing waits any more.
func (t *throttle) accepted(last bool) {
	if !t.on() {
		return
	}
	if t.limit += t.limit/4 + 1; last || t.limit >= batchActionsMax {
		*t = throttle{}
	}
}

// heard notes that a call that is not in a batch was refused for overload.
func (t *throttle) heard(now time.Time, delay time.Duration, refusal error) {
	if !t.on() {
		t.limit = batchActionsMax
	}
	t.wake(now, delay, refusal)
}

// refused notes that of a batch with so many actions only some were accepted, and after what
// delay more are welcome.
func (t *throttle) refused(now time.Time, sent, accepted int, delay time.Duration, refusal error) {
	t.limit = max(accepted+accepted/4+1, sent/2)
	t.wake(now, delay, refusal)
}

// wake notes for how long nothing may be sent, and why.
func (t *throttle) wake(now time.Time, delay time.Duration, refusal error) {
	delay = max(delay, backoffMin)
	if until := now.Add(delay + rand.N(delay/2+1)); until.After(t.until) {
		t.until = until
	}
	t.refusal = refusal
}
