package gossip

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// strangerInterval is the least time between two lines about strangers.
const strangerInterval = time.Second

// strangers is where memberlist writes its log. It passes every line on but those
// about what arrived and could not be used. Anybody who reaches the port can cause
// these, so they are written at most once in an interval, with their number.
type strangers struct {
	logger hclog.Logger
	rest   interface{ Write([]byte) (int, error) }

	mu      sync.Mutex
	next    time.Time // no line before it
	leftOut int
	newest  string // of those left out
	timer   *time.Timer
	stopped bool
}

func newStrangers(logger hclog.Logger) *strangers {
	return &strangers{logger: logger, rest: logger.StandardWriter(&hclog.StandardLoggerOptions{InferLevels: true})}
}

// Write takes one line of memberlist's.
func (s *strangers) Write(line []byte) (int, error) {
	if !aboutStranger(line) {
		return s.rest.Write(line)
	}
	_, text, _ := strings.Cut(string(bytes.TrimSpace(line)), "] ")
	s.note(strings.TrimPrefix(text, "memberlist: "))
	return len(line), nil
}

// aboutStranger reports whether a line complains about what arrived: it then says
// from where.
func aboutStranger(line []byte) bool {
	return bytes.Contains(line, []byte(" from=")) &&
		(bytes.Contains(line, []byte("[ERR]")) || bytes.Contains(line, []byte("[WARN]")))
}

// note writes what a stranger did, now or, with all that follows, at the end of the
// interval.
func (s *strangers) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.timer == nil && !now.Before(s.next) {
		s.write(what, 0)
		return
	}
	s.leftOut, s.newest = s.leftOut+1, what
	if s.timer == nil && !s.stopped {
		s.timer = time.AfterFunc(s.next.Sub(now), s.flush)
	}
}

// flush writes the newest of what was left out, and how much else there was.
func (s *strangers) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.leftOut > 0 {
		s.write(s.newest, s.leftOut-1)
	}
	s.leftOut = 0
}

func (s *strangers) write(what string, leftOut int) {
	s.next = time.Now().Add(strangerInterval)
	s.logger.Warn("ignored a message or connection of a stranger", "reason", what, "others_left_out", leftOut)
}

// stop writes what is left.
func (s *strangers) stop() {
	s.mu.Lock()
	s.stopped = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.flush()
}
