package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress shows what goes on: one line that is rewritten on a terminal, and a
// line every few seconds elsewhere.
type progress struct {
	w     io.Writer
	tty   bool
	began time.Time
	stop  chan struct{}
	wg    sync.WaitGroup

	mu                        sync.Mutex
	phase                     string
	total, inFlight, finished int
	thinking                  int
	// onSubmit is called with the number of submissions of this phase.
	onSubmit func(n int)
}

// How often the line is rewritten, and how often one is added.
const (
	redrawInterval = 150 * time.Millisecond
	lineInterval   = 4 * time.Second
)

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, tty: isTerminal(w), began: time.Now(), stop: make(chan struct{})}
	p.wg.Go(p.loop)
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func (p *progress) loop() {
	interval := lineInterval
	if p.tty {
		interval = redrawInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			p.draw()
		}
	}
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%4.0fs  %s", time.Since(p.began).Seconds(), p.phase)
	if p.total > 0 {
		line += fmt.Sprintf(": %d of %d actions done, %d live, %d thinking", p.finished, p.total, p.inFlight, p.thinking)
	}
	if p.tty {
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(p.w, line)
	}
}

// begin starts a phase. With a total it counts actions.
func (p *progress) begin(phase string, total int, onSubmit func(int)) {
	p.mu.Lock()
	p.phase, p.total, p.onSubmit = phase, total, onSubmit
	p.inFlight, p.finished, p.thinking = 0, 0, 0
	p.mu.Unlock()
	p.draw()
}

// say writes a line that stays.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintf(p.w, "%4.0fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

func (p *progress) think(delta int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thinking += delta
}

func (p *progress) submitted() {
	p.mu.Lock()
	p.inFlight++
	n, hook := p.inFlight+p.finished, p.onSubmit
	p.mu.Unlock()
	if hook != nil {
		hook(n)
	}
}

func (p *progress) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	p.finished++
}

func (p *progress) close() {
	close(p.stop)
	p.wg.Wait()
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
