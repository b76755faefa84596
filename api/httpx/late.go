package httpx

import "time"

// Late calls then once the time is over, unless stop is called before. stop reports whether
// it was over, and returns only when then has ended: the deadline of a connection may not be
// set after the handler of its request has returned, as HTTP/2 panics at that.
func Late(after time.Duration, then func()) (stop func() (late bool)) {
	ended := make(chan struct{})
	timer := time.AfterFunc(after, func() {
		defer close(ended)
		then()
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-ended
		return true
	}
}
