package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// bufferLines bounds the lines that wait to be written.
	bufferLines = 4096
	// BytesMaxDefault is the size in bytes at which a file is renamed.
	BytesMaxDefault = 100 << 20
	// FilesDefault is how many renamed files are kept.
	FilesDefault = 10
	// batchBytes bounds what is written at once.
	batchBytes = 256 << 10
	// retryAfter is how long the writer waits after an error.
	retryAfter = time.Second
)

// Options of a log.
type Options struct {
	Path string
	// BytesMax is the size at which the file is renamed to PATH.1, PATH.1 to PATH.2, and so on;
	// 0 means BytesMaxDefault. Files is how many of these are kept; 0 means FilesDefault.
	BytesMax int64
	Files    int
	Logger   hclog.Logger
}

// Log is an audit log. It is safe for concurrent use.
type Log struct {
	o      Options
	lines  chan []byte
	reopen chan chan error
	done   chan struct{}
	once   sync.Once
	stop   chan struct{}

	file *os.File // of the writer
	size int64
}

// Open opens a log, and creates its file with mode 0600 if there is none. The caller has to close
// it.
func Open(o Options) (*Log, error) {
	if o.BytesMax == 0 {
		o.BytesMax = BytesMaxDefault
	}
	if o.Files == 0 {
		o.Files = FilesDefault
	}
	l := &Log{
		o: o, lines: make(chan []byte, bufferLines), reopen: make(chan chan error), done: make(chan struct{}), stop: make(chan struct{}),
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// Write hands over a record. It waits while too many lines wait to be written. After Close it
// does nothing.
func (l *Log) Write(record any) {
	line, err := json.Marshal(record)
	if err != nil {
		l.o.Logger.Error("an audit record cannot be encoded", "error", err)
		return
	}
	select {
	case <-l.stop:
		return
	default:
	}
	select {
	case l.lines <- append(line, '\n'):
	case <-l.stop:
	}
}

// Reopen closes the file and opens the one that is at the path now, after something else has
// renamed it.
func (l *Log) Reopen() error {
	answer := make(chan error, 1)
	select {
	case l.reopen <- answer:
		return <-answer
	case <-l.done:
		return os.ErrClosed
	}
}

// Close writes what waits and closes the file.
func (l *Log) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	return errors.Join(l.file.Sync(), l.file.Close())
}

func (l *Log) run() {
	defer close(l.done)
	for {
		select {
		case line := <-l.lines:
			l.write(l.batch(line))
		case answer := <-l.reopen:
			answer <- l.reopenFile()
		case <-l.stop:
			for {
				select {
				case line := <-l.lines:
					l.write(l.batch(line))
					continue
				default:
				}
				return
			}
		}
	}
}

// batch is a line and those that wait behind it.
func (l *Log) batch(line []byte) []byte {
	var b bytes.Buffer
	b.Write(line)
	for b.Len() < batchBytes {
		select {
		case next := <-l.lines:
			b.Write(next)
		default:
			return b.Bytes()
		}
	}
	return b.Bytes()
}

// write appends lines. It tries again until it succeeds or the log is closed, and never writes a
// part of a line that is not completed.
func (l *Log) write(lines []byte) {
	if l.size > 0 && l.size+int64(len(lines)) > l.o.BytesMax { // here a line begins
		if err := l.rotate(); err != nil {
			l.o.Logger.Error("the audit log cannot be renamed; it grows on", "path", l.o.Path, "error", err)
		}
	}
	for {
		n, err := l.file.Write(lines)
		l.size += int64(n)
		if lines = lines[n:]; err == nil {
			return
		}
		l.o.Logger.Error("the audit log cannot be written; calls that change something wait for it", "path", l.o.Path, "error", err)
		select {
		case <-time.After(retryAfter):
		case answer := <-l.reopen:
			answer <- l.reopenFile()
		case <-l.stop:
			return
		}
	}
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.o.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("audit log: %w", err), f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// reopenFile goes on with the file that is at the path. If there can be none, it goes on with the
// one that it has.
func (l *Log) reopenFile() error {
	old := l.file
	if err := l.open(); err != nil {
		l.o.Logger.Error("the audit log cannot be opened again; the old file is written on", "path", l.o.Path, "error", err)
		return err
	}
	return errors.Join(old.Sync(), old.Close())
}

// rotate renames the files and begins a new one. If the file was renamed already and no new one could
// be opened then, nothing is renamed: else each further try would push an older file out.
func (l *Log) rotate() error {
	if _, err := os.Stat(l.o.Path); errors.Is(err, os.ErrNotExist) {
		return l.reopenFile()
	}
	name := func(n int) string { return l.o.Path + "." + strconv.Itoa(n) }
	for n := l.o.Files - 1; n >= 1; n-- {
		if err := os.Rename(name(n), name(n+1)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.o.Path, name(1)); err != nil {
		return err
	}
	return l.reopenFile()
}
