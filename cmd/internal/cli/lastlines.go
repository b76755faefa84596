package cli

import (
	"bytes"
	"slices"

	rotav1 "rota/api/gen/rota/v1"
)

// chunkSink takes output as it is read.
type chunkSink interface {
	// write takes a piece; its error ends the reading.
	write(chunk *rotav1.OutputChunk)
	failed() error
}

// lastLines keeps the last lines of each stream of an attempt.
type lastLines struct {
	most           int
	stdout, stderr lastOf
}

// lastOf are the last lines of one stream.
type lastOf struct {
	attempt uint32
	data    []byte
	end     uint64 // offset after them
}

// write implements chunkSink.
func (l *lastLines) write(chunk *rotav1.OutputChunk) {
	of := &l.stdout
	if chunk.GetStream() == rotav1.OutputStream_OUTPUT_STREAM_STDERR {
		of = &l.stderr
	}
	of.attempt, of.end = chunk.GetAttempt(), chunk.GetOffset()+uint64(len(chunk.GetData()))
	of.data = append(of.data, chunk.GetData()...)
	of.data = slices.Clip(of.data[cutLines(of.data, l.most):])
}

func (l *lastLines) failed() error { return nil }

// cutLines returns where the last lines begin.
func cutLines(data []byte, most int) int {
	at := len(data)
	if at > 0 && data[at-1] == '\n' {
		at-- // it ends the last line
	}
	for range most {
		at = bytes.LastIndexByte(data[:max(at, 0)], '\n')
		if at < 0 {
			return 0
		}
	}
	if most == 0 {
		return len(data)
	}
	return at + 1
}

// reached is where to go on in each stream.
func (l *lastLines) reached() (stdout, stderr uint64) { return l.stdout.end, l.stderr.end }

// print writes the lines to a sink, which then expects what follows them.
func (l *lastLines) print(to *outputSink) {
	for stream, of := range map[rotav1.OutputStream]*lastOf{
		rotav1.OutputStream_OUTPUT_STREAM_STDOUT: &l.stdout, rotav1.OutputStream_OUTPUT_STREAM_STDERR: &l.stderr,
	} {
		to.begin(place{of.attempt, stream}, of.end-uint64(len(of.data)))
		to.write(&rotav1.OutputChunk{Stream: stream, Attempt: of.attempt, Offset: of.end - uint64(len(of.data)), Data: of.data})
	}
}
