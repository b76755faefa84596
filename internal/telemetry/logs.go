package telemetry

import (
	"bytes"
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// Log formats.
const (
	Text = "text"
	JSON = "json"
)

// recentBytes is how much of its log a process remembers.
const recentBytes = 1 << 20

// Recent remembers the newest lines of a log, up to 1 MiB.
type Recent struct {
	mu    sync.Mutex
	lines [][]byte
	bytes int
}

// Write implements io.Writer: each call is a line.
func (r *Recent) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, bytes.Clone(line))
	r.bytes += len(line)
	for r.bytes > recentBytes && len(r.lines) > 1 {
		r.bytes -= len(r.lines[0])
		r.lines[0] = nil
		r.lines = r.lines[1:]
	}
	return len(line), nil
}

// WriteTo writes all remembered lines, oldest first.
func (r *Recent) WriteTo(w io.Writer) (int64, error) {
	r.mu.Lock()
	all := bytes.Join(r.lines, nil)
	r.mu.Unlock()
	n, err := w.Write(all)
	return int64(n), err
}

// NewLog returns a logger that writes to w, and what remembers its newest lines. SetLevel of
// the logger changes the level of all loggers made from it.
func NewLog(name string, level hclog.Level, format string, w io.Writer) (hclog.Logger, *Recent) {
	recent := &Recent{}
	// A line is remembered first: w may be a full disk.
	return hclog.New(&hclog.LoggerOptions{
		Name: name, Level: level, JSONFormat: format == JSON, Output: io.MultiWriter(recent, w),
	}), recent
}
