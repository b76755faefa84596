package cli

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

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
	data    []byte // with more before them, at most as much again
	kept    int    // length of data when it was last cut
	end     uint64 // offset after them
	times   []pieceTime
}

// pieceTime is when the bytes from an offset on had been written, up to those of the next.
type pieceTime struct {
	offset uint64
	at     *timestamppb.Timestamp // nil: times were not asked for
}

// cutBytes is the least that is cut off at once, so that small pieces are not copied each time.
const cutBytes = 64 << 10

// cut drops all but the last lines.
func (o *lastOf) cut(most int) {
	o.data = slices.Clone(o.data[cutLines(o.data, most):])
	o.kept = len(o.data)
	for len(o.times) > 1 && o.times[1].offset <= o.begin() {
		o.times = o.times[1:]
	}
}

// write implements chunkSink.
func (l *lastLines) write(chunk *rotav1.OutputChunk) {
	of := &l.stdout
	if chunk.GetStream() == rotav1.OutputStream_OUTPUT_STREAM_STDERR {
		of = &l.stderr
	}
	of.attempt, of.end = chunk.GetAttempt(), chunk.GetOffset()+uint64(len(chunk.GetData()))
	of.data = append(of.data, chunk.GetData()...)
	of.times = append(of.times, pieceTime{chunk.GetOffset(), chunk.GetTime()})
	if len(of.data) > 2*of.kept+cutBytes { // so all cuts together copy at most a multiple of what came
		of.cut(l.most)
	}
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
		of.cut(l.most)
		to.begin(place{of.attempt, stream}, of.begin())
		for i, piece := range of.times {
			from, end := max(piece.offset, of.begin()), of.end
			if i+1 < len(of.times) {
				end = of.times[i+1].offset
			}
			to.write(&rotav1.OutputChunk{Stream: stream, Attempt: of.attempt, Offset: from, Time: piece.at,
				Data: of.data[from-of.begin() : max(end, from)-of.begin()]})
		}
	}
}

// begin is the offset of the first of them.
func (o *lastOf) begin() uint64 { return o.end - uint64(len(o.data)) }
