package replica

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// guard decides when the process has to end. After a failed fsync the kernel
// may have dropped the pages and the next fsync succeeds, so the first failure
// is final and every later write is refused.
type guard struct {
	exit   func(error)
	logger hclog.Logger
	limit  time.Duration

	failed atomic.Pointer[error]

	mu     sync.Mutex
	next   uint64
	writes map[uint64]write

	stop chan struct{}
	done chan struct{}
}

type write struct {
	what  string
	since time.Time
}

func newGuard(limit time.Duration, exit func(error), logger hclog.Logger) *guard {
	g := &guard{
		exit: exit, logger: logger, limit: limit,
		writes: make(map[uint64]write),
		stop:   make(chan struct{}), done: make(chan struct{}),
	}
	go g.watch()
	return g
}

// err returns the fatal error, or nil.
func (g *guard) err() error {
	if p := g.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fatal records the first fatal error and calls Exit for it.
func (g *guard) fatal(err error) {
	if !g.failed.CompareAndSwap(nil, &err) {
		return
	}
	g.logger.Error("replica stops", "error", err)
	g.exit(err)
}

// write runs one write to disk under the watchdog. Its error, or the panic of a
// store that found its own pages broken, is fatal.
func (g *guard) write(what string, fn func() error) (err error) {
	if err := g.err(); err != nil {
		return err
	}
	id := g.begin(what)
	defer func() {
		g.end(id)
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s: %v", ErrCorrupt, what, p)
			g.fatal(err)
			return
		}
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrWriteFailed, what, err)
			g.fatal(err)
			return
		}
		// A write that ended after the watchdog gave up must not count.
		err = g.err()
	}()
	return fn()
}

func (g *guard) begin(what string) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	g.writes[g.next] = write{what: what, since: time.Now()}
	return g.next
}

func (g *guard) end(id uint64) {
	g.mu.Lock()
	delete(g.writes, id)
	g.mu.Unlock()
}

func (g *guard) watch() {
	defer close(g.done)
	tick := time.NewTicker(max(g.limit/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
		}
		if what, age := g.oldest(); age > g.limit {
			g.fatal(fmt.Errorf("%w: %s has not finished for %v (limit %v)", ErrDiskHang, what, age.Round(time.Millisecond), g.limit))
		}
	}
}

func (g *guard) oldest() (what string, age time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.writes {
		if a := time.Since(w.since); a > age {
			what, age = w.what, a
		}
	}
	return what, age
}

func (g *guard) close() {
	close(g.stop)
	<-g.done
}
