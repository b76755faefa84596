package cli

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

func TestSinceIsATimeOrHowLongAgo(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "10m": now.Add(-10 * time.Minute), "2026-03-01T11:00:00Z": now.Add(-time.Hour), "2026-03-01T13:00:00+02:00": now.Add(-time.Hour),
	} {
		if got, err := sinceTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "-1m", "10"} {
		if got, err := sinceTime(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A line has the time of its first byte, however it comes, and lines of one piece have one time.
func TestLinesBeginWithTheirTimes(t *testing.T) {
	var out, errs bytes.Buffer
	sink := (&app{out: &out, err: &errs}).newSink(t.Context(), func(error) {})
	sink.times, sink.since = true, true
	chunk := func(offset uint64, data string, second int64) *rotav1.OutputChunk {
		return &rotav1.OutputChunk{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Attempt: 1, Offset: offset, Data: []byte(data), Time: &timestamppb.Timestamp{Seconds: second}}
	}
	last := &lastLines{most: 3}
	for _, c := range []*rotav1.OutputChunk{chunk(100, "a\nb\nc", 1), chunk(105, "c\nd\n", 2)} {
		last.write(c)
	}
	last.print(sink)
	sink.write(chunk(109, "e", 3))
	want := "1970-01-01T00:00:01.000Z b\n1970-01-01T00:00:01.000Z cc\n1970-01-01T00:00:02.000Z d\n1970-01-01T00:00:03.000Z e"
	if out.String() != want || errs.Len() > 0 {
		t.Errorf("printed %q and %q, want %q", out.String(), errs.String(), want)
	}
}
