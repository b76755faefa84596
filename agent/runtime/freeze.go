package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"rota/agent/plan"
)

// freezeMax is how long a freeze may take. A process that hangs in the kernel puts it off.
const freezeMax = 200 * time.Millisecond

var errNoFreezer = errors.New("attempts cannot be frozen here: that takes cgroups")

// freezeAttempt stops all processes of an attempt where they are, or lets them go on, for the agent
// of a session. Its run timeout stands still meanwhile. A process that hangs in the kernel puts a
// freeze off, so other requests are served until it is done: the next deadline must not wait for it.
func (s *supervisor) freezeAttempt(session uint64, k plan.Key, frozen bool) error {
	var a *attempt
	var b box
	err := s.request(session, func() (err error) {
		a, b, err = s.beginFreeze(k, frozen)
		return err
	})
	if a == nil || err != nil {
		return err
	}
	return toWire(s.endFreeze(session, a, b, b.freeze(true)))
}

// beginFreeze lets an attempt go on, or returns it and its box if it is to be frozen. Only what was
// forked is frozen: before, a thread of the supervisor may be in the cgroup.
func (s *supervisor) beginFreeze(k plan.Key, frozen bool) (*attempt, box, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[k]
	switch {
	case a == nil || a.ended != nil:
		return nil, nil, nil
	case a.reach == nil:
		return nil, nil, fmt.Errorf("%w: %s", ErrNotRunning, k)
	case a.freezing:
		return nil, nil, fmt.Errorf("%s is being frozen for an earlier request", k)
	case a.frozen == frozen:
		return nil, nil, nil
	case frozen:
		a.freezing = true
		a.clock.stop()
		return a, a.reach.box, nil
	}
	if err := a.reach.box.freeze(false); err != nil {
		return nil, nil, err
	}
	a.clock.goOn()
	a.frozen = false
	return nil, nil, nil
}

// endFreeze notes what became of a freeze. One for an agent that was replaced is undone: its
// successor was told that the attempt runs.
func (s *supervisor) endFreeze(session uint64, a *attempt, b box, err error) error {
	s.serving.Lock()
	defer s.serving.Unlock()
	current := s.isCurrent(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.freezing = false
	if err == nil && !current {
		err = errReplaced
		_ = b.freeze(false) // fails only if it has ended
	}
	if a.frozen = err == nil; !a.frozen {
		a.clock.goOn()
	}
	return err
}

// freeze freezes the cgroup, or thaws it. If it is not frozen in time, it is thawed.
func (b *cgroupBox) freeze(frozen bool) error {
	err := freezeCgroup(b.processDir(), frozen)
	if frozen && err != nil {
		_ = freezeCgroup(b.processDir(), false)
	}
	return err
}

// freezeCgroup returns once no process of a cgroup runs, or once they may go on.
func freezeCgroup(dir string, frozen bool) error {
	file, word, done := "freezer.state", "THAWED", func() bool { return true }
	if exists(filepath.Join(dir, "cgroup.freeze")) {
		file, word = "cgroup.freeze", "0"
		if frozen {
			word, done = "1", func() bool { return readField(filepath.Join(dir, "cgroup.events"), "frozen") == 1 }
		}
	} else if frozen {
		word, done = "FROZEN", func() bool {
			state, err := os.ReadFile(filepath.Join(dir, file))
			return err == nil && strings.TrimSpace(string(state)) == word
		}
	}
	until := time.Now().Add(freezeMax)
	for pause := 100 * time.Microsecond; ; pause = backoff(pause) {
		if err := writeFile(filepath.Join(dir, file), word); err != nil {
			return fmt.Errorf("freeze or thaw: %w", err)
		}
		if done() {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("not frozen after %s: a process hangs in the kernel", freezeMax)
		}
		time.Sleep(pause)
	}
}

// runClock measures how long an attempt runs, and stands still while it is frozen.
type runClock struct {
	mu      sync.Mutex
	timer   *time.Timer // nil: no timeout
	left    time.Duration
	since   time.Time     // when it began to run last
	stopped time.Time     // when it was frozen; zero: it is not
	frozen  time.Duration // how long it was, before
}

// begin starts the clock. What it returns gets one value when the timeout is over; nil without one.
func (c *runClock) begin(timeout time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if timeout <= 0 {
		return nil
	}
	c.left, c.since, c.timer = timeout, time.Now(), time.NewTimer(timeout)
	if !c.stopped.IsZero() {
		c.timer.Stop()
	}
	return c.timer.C
}

func (c *runClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = time.Now()
	if c.timer != nil && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

func (c *runClock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		return
	}
	c.frozen += time.Since(c.stopped)
	c.stopped, c.since = time.Time{}, time.Now()
	if c.timer != nil {
		c.timer.Reset(max(c.left, 0))
	}
}

// frozenFor returns how long it was frozen until a time.
func (c *runClock) frozenFor(until time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		return c.frozen
	}
	return c.frozen + max(0, until.Sub(c.stopped))
}
