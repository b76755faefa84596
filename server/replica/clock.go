package replica

import (
	"sync"
	"time"

	logv1 "rota/api/gen/log/v1"
)

// logClock stamps entries: the newest committed time when this leader became
// ready, plus what has passed since on its monotonic clock. Clocks of different
// machines are never compared.
type logClock struct {
	committed func() int64
	now       func() time.Time

	mu     sync.Mutex
	anchor int64
	since  time.Time
	last   int64
}

func newLogClock(committed func() int64, now func() time.Time) *logClock {
	return &logClock{committed: committed, now: now, anchor: committed(), since: now()}
}

// stamp returns the time of the next entry. A cluster that has no time yet takes
// the leader's wall clock, once: with the command that bootstraps it.
func (c *logClock) stamp(cmds []*logv1.Command) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.anchor < WallFloor && bootstraps(cmds) {
		c.since = c.now()
		c.anchor = c.since.UnixNano()
	}
	t := c.anchor + int64(c.now().Sub(c.since))
	c.last = max(t, c.last, c.committed())
	return c.last
}

// WallFloor is 2020-01-01: log time below it never came from a wall clock, and the
// cluster has no time yet. Nanoseconds.
const WallFloor = 1_577_836_800_000_000_000

// wallTime is what this server's wall clock shows, for people; 0 if it was never set.
func wallTime() int64 {
	if ns := time.Now().UnixNano(); ns > WallFloor {
		return ns
	}
	return 0
}

func bootstraps(cmds []*logv1.Command) bool {
	for _, c := range cmds {
		if _, ok := c.Verb.(*logv1.Command_Bootstrap); ok {
			return true
		}
	}
	return false
}
