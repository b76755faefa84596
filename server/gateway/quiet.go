package gateway

import (
	"sync"
	"time"
)

// comment is what a client ignores. Events end with an empty line, too, so it is between two.
const comment = ": the gateway waits\n\n"

// quiet sends the client of a stream a comment when nothing else was sent for a while: neither the
// client nor a proxy before it takes the silence for the end then. Its lock is held by whoever
// writes to the client after the header.
type quiet struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// said begins the time to the next comment. The lock is held.
func (c *call) said() {
	switch every := c.g.cfg.KeepAlive; {
	case every <= 0 || c.quiet.over:
	case c.quiet.timer == nil:
		c.quiet.timer = time.AfterFunc(every, c.breakSilence)
	default:
		c.quiet.timer.Reset(every)
	}
}

func (c *call) breakSilence() {
	c.quiet.mu.Lock()
	defer c.quiet.mu.Unlock()
	if c.quiet.over {
		return
	}
	if err := c.write([]byte(comment)); err != nil {
		c.f.interrupt(errClientGone)
		return
	}
	c.said()
}

// endComments returns when no comment is written any more.
func (c *call) endComments() {
	c.quiet.mu.Lock()
	defer c.quiet.mu.Unlock()
	c.quiet.over = true
	if c.quiet.timer != nil {
		c.quiet.timer.Stop()
	}
}
