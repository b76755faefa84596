package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// eventBytesMax bounds one event of a stream: a token with its logprobs, or all of a response.
const eventBytesMax = 32 << 20

var errEventSize = errors.New("an event of the stream is too large")

// events splits a stream of server-sent events. An event that is not complete when the stream
// ends is no event.
type events struct {
	r   io.Reader
	buf []byte
	// at is where the next event begins, line where the line begins whose end is looked for, and
	// scanned how far.
	at, line, scanned int
}

// next returns the next event that has arrived, with the empty line behind it. The bytes are
// valid until fill.
func (e *events) next() (event []byte, ok bool) {
	for {
		i := bytes.IndexByte(e.buf[e.scanned:], '\n')
		if i < 0 {
			e.scanned = len(e.buf)
			return nil, false
		}
		line := e.buf[e.line : e.scanned+i]
		e.scanned += i + 1
		e.line = e.scanned
		if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
			event, e.at = e.buf[e.at:e.scanned], e.scanned
			return event, true
		}
	}
}

// fill reads more of the stream. Incomplete events stay.
func (e *events) fill() error {
	if e.at > 0 {
		n := copy(e.buf, e.buf[e.at:])
		e.buf, e.scanned, e.line, e.at = e.buf[:n], e.scanned-e.at, e.line-e.at, 0
	}
	if len(e.buf) == cap(e.buf) {
		if len(e.buf) >= eventBytesMax {
			return fmt.Errorf("%w: more than %d MiB", errEventSize, eventBytesMax>>20)
		}
		grown := make([]byte, len(e.buf), max(4096, 2*cap(e.buf)))
		copy(grown, e.buf)
		e.buf = grown
	}
	n, err := e.r.Read(e.buf[len(e.buf):cap(e.buf)])
	e.buf = e.buf[:len(e.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}

// payload returns where in an event its data is. Data of several lines cannot be edited: ok is false
// then, as in an event without data, where the span is empty as well.
func payload(event []byte) (at span, ok bool) {
	for pos := 0; pos < len(event); {
		end := bytes.IndexByte(event[pos:], '\n')
		if end < 0 {
			end = len(event) - pos
		}
		line := event[pos : pos+end]
		if bytes.HasPrefix(line, dataPrefix) {
			if ok {
				return span{at.start, len(event)}, false
			}
			at, ok = span{pos + len(dataPrefix), pos + end}, true
			if n := len(line); line[n-1] == '\r' {
				at.end--
			}
			if !at.empty() && event[at.start] == ' ' {
				at.start++
			}
		}
		pos += end + 1
	}
	return at, ok
}

var (
	dataPrefix = []byte("data:")
	doneData   = []byte("[DONE]")
)
