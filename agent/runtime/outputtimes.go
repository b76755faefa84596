package runtime

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rota/agent/plan"
)

// ErrNoTimes: nobody noted when this output was written. An earlier release kept it.
var ErrNoTimes = errors.New("this output has no times")

const (
	// timeMarkBytes is the size of one mark on disk: the size of a stream, with the stream in
	// its lowest bit, and the milliseconds since 1970, both big-endian.
	timeMarkBytes = 16
	// timeMarksMax bounds the marks of an attempt. Above it, every second one is dropped, and
	// marks are made half as often.
	timeMarksMax = 2048
	// timedName is a file as old as the first supervisor here that notes times.
	timedName = "timed"
)

// timeMark says that a stream had so many bytes at a time.
type timeMark struct {
	stream Stream
	size   int64
	at     int64 // milliseconds since 1970
}

// outputTimes notes when an attempt had written how much. Commands write to their files without
// anybody in between, so sizes are looked at with each sweep. What came after the last mark was
// written at the time of the file's last change, so an attempt that ends before the first sweep
// needs no marks.
type outputTimes struct {
	path string

	mu    sync.Mutex
	marks []timeMark
	last  [2]timeMark
	every int64 // milliseconds between marks, at least
}

// timesPath is where the marks of an attempt are, in a supervisor's directory.
func timesPath(dir string, key plan.Key) string {
	return filepath.Join(dir, outputName, key.String()+".times")
}

// note makes a mark if the stream has grown. A time outside of the last two sweeps is not
// believed: a command may change the times of its files.
func (t *outputTimes) note(s Stream, size int64, changed, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := &t.last[s-Stdout]
	at := max(min(changed.UnixMilli(), now.UnixMilli()), now.Add(-2*sweepEvery).UnixMilli(), last.at)
	if size <= last.size || (last.size > 0 && at < last.at+t.every) {
		return nil
	}
	*last = timeMark{s, size, at}
	t.marks = append(t.marks, *last)
	if len(t.marks) <= timeMarksMax {
		return t.append(*last)
	}
	t.thin()
	return t.rewrite()
}

// thin drops every second mark of each stream.
func (t *outputTimes) thin() {
	var n [2]int
	t.marks = slices.DeleteFunc(t.marks, func(m timeMark) bool {
		n[m.stream-Stdout]++
		return n[m.stream-Stdout]%2 == 1 && m != t.last[m.stream-Stdout]
	})
	t.every = max(2*t.every, 2*sweepEvery.Milliseconds())
}

func (t *outputTimes) append(m timeMark) error {
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, modeRunning)
	if err != nil {
		return err
	}
	_, err = f.Write(appendMark(nil, m))
	return errors.Join(err, f.Close())
}

// rewrite replaces the file, so that a reader sees all marks of before or all of now.
func (t *outputTimes) rewrite() error {
	var b []byte
	for _, m := range t.marks {
		b = appendMark(b, m)
	}
	next := t.path + ".next"
	if err := os.WriteFile(next, b, modeRunning); err != nil {
		return err
	}
	return os.Rename(next, t.path)
}

func appendMark(b []byte, m timeMark) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(m.size)<<1|uint64(m.stream-Stdout))
	return binary.BigEndian.AppendUint64(b, uint64(m.at))
}

// decodeMarks returns the marks of each stream, up to the first that cannot be right: the machine
// may have stopped while it was written.
func decodeMarks(b []byte) (marks [2][]timeMark) {
	for ; len(b) >= timeMarkBytes; b = b[timeMarkBytes:] {
		size, at := binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:]))
		i := size & 1
		m := timeMark{Stdout + Stream(i), int64(size >> 1), at}
		var last timeMark
		if n := len(marks[i]); n > 0 {
			last = marks[i][n-1]
		}
		if m.size <= last.size || m.at < last.at {
			return marks
		}
		marks[i] = append(marks[i], m)
	}
	return marks
}

// timeIndex finds the time of a byte of an attempt's output, and the bytes since a time.
type timeIndex struct {
	path  string
	seen  os.FileInfo // of the file when it was read; nil: there was none
	marks [2][]timeMark
}

// refresh reads the marks if they have changed.
func (x *timeIndex) refresh() error {
	st, err := os.Stat(x.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // there are none yet, or the output was dropped
	}
	if err == nil && x.seen != nil && os.SameFile(st, x.seen) && st.Size() == x.seen.Size() {
		return nil
	}
	b, err := os.ReadFile(x.path)
	if err != nil {
		return fmt.Errorf("read times of output: %w", err)
	}
	x.seen, x.marks = st, decodeMarks(b)
	return nil
}

// of returns when the byte at an offset had been written, and the end of what had been by then.
func (x *timeIndex) of(i int, offset int64) (mark timeMark, ok bool) {
	marks := x.marks[i]
	n, _ := slices.BinarySearchFunc(marks, offset, func(m timeMark, o int64) int { return cmp.Compare(m.size, o+1) })
	if n == len(marks) {
		return timeMark{}, false
	}
	return marks[n], true
}

// since returns where in a stream to begin, so that nothing is left out that was written at a
// time or later.
func (x *timeIndex) since(i int, ms int64) int64 {
	marks := x.marks[i]
	n, _ := slices.BinarySearchFunc(marks, ms, func(m timeMark, at int64) int { return cmp.Compare(m.at, at) })
	if n == 0 {
		return 0
	}
	return marks[n-1].size
}

// WithTimes has Next say of each piece when it was written. Errors: ErrNoTimes.
func (o *Output) WithTimes() error {
	x := &timeIndex{path: o.times}
	if err := x.refresh(); err != nil {
		return err
	}
	if x.seen == nil {
		if err := o.wereTimed(); err != nil {
			return err
		}
	}
	o.index = x
	return nil
}

// wereTimed reports whether times were noted when output without marks was written.
func (o *Output) wereTimed() error {
	began, err := os.Stat(filepath.Join(filepath.Dir(o.times), timedName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read times of output: %w", err)
	}
	for _, f := range o.files {
		st, statErr := f.Stat()
		if statErr != nil {
			return fmt.Errorf("read times of output: %w", statErr)
		}
		if st.Size() > 0 && (err != nil || st.ModTime().Before(began.ModTime())) {
			return ErrNoTimes
		}
	}
	return nil
}

// Since skips what was written before a time, as exactly as the marks say: all that was written
// at that time or later is read, and up to a quarter of a second more, or more of long output.
// Errors: ErrNoTimes.
func (o *Output) Since(at time.Time) error {
	if err := o.WithTimes(); err != nil {
		return err
	}
	for i, f := range o.files {
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("read times of output: %w", err)
		}
		from := o.index.since(i, at.UnixMilli())
		if st.ModTime().UnixMilli() < at.UnixMilli() {
			from = st.Size()
		}
		o.offset[i] = max(o.offset[i], from)
	}
	return nil
}

// timed cuts a piece of n bytes at start to what was written at one time, and says when.
func (o *Output) timed(i int, start int64, n int) (int, time.Time, error) {
	mark, ok := o.index.of(i, start)
	if !ok {
		if err := o.index.refresh(); err != nil {
			return 0, time.Time{}, err
		}
		mark, ok = o.index.of(i, start)
	}
	if ok {
		return int(min(int64(n), mark.size-start)), time.UnixMilli(mark.at), nil
	}
	st, err := o.files[i].Stat()
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("read times of output: %w", err)
	}
	at := st.ModTime().UnixMilli()
	if marks := o.index.marks[i]; len(marks) > 0 {
		at = max(at, marks[len(marks)-1].at)
	}
	return n, time.UnixMilli(at), nil
}
