package clockctl

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rota/internal/clock/boottime"
)

// ErrRefused says that no machine has a clock as it was asked for.
var ErrRefused = errors.New("clock refused")

// Control changes the clock of all processes that follow its file. Its methods
// may be called concurrently.
type Control struct {
	mu     sync.Mutex
	page   *page
	memory []byte
}

// Create makes the file, which must not exist yet: processes may have it mapped.
// The clock shows the true time.
func Create(path string) (c *Control, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create clock file: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(int64(pageBytes)); err != nil {
		return nil, fmt.Errorf("create clock file: %w", err)
	}
	c = &Control{}
	if c.page, c.memory, err = mapPage(f, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return nil, err
	}
	now := boottime.Now()
	c.page.write(line{trueNS: now, shownNS: now})
	c.page.magic.Store(magic)
	return c, nil
}

// Set makes the clock gain ratePPM millionths from now on, 0 for the true speed,
// after it has jumped forward by jump. It stays ahead or behind by what it has
// gained so far.
func (c *Control) Set(ratePPM int64, jump time.Duration) error {
	switch {
	case ratePPM < RateMin || ratePPM > RateMax:
		return fmt.Errorf("%w: rate %d ppm: from %d to %d", ErrRefused, ratePPM, RateMin, RateMax)
	case jump < 0:
		return fmt.Errorf("%w: jump of %v: a monotonic clock never goes back; make it slower", ErrRefused, jump)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l, _ := c.page.read()
	c.page.seq.Add(1) // from here on nobody gets the time by the old line
	now := boottime.Now()
	c.page.write(line{trueNS: now, shownNS: l.shown(now) + int64(jump), ratePPM: ratePPM})
	c.page.seq.Add(1)
	return nil
}

// Ahead is by how much the clock is ahead of the machine's, negative if it is
// behind.
func (c *Control) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, now := c.page.read()
	return time.Duration(l.shown(now) - now)
}

// Close unmaps the file. Processes that follow it go on as they were told last.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory == nil {
		return nil
	}
	memory := c.memory
	c.page, c.memory = nil, nil
	return unix.Munmap(memory)
}
