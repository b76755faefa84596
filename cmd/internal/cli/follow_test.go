package cli

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// brokenOutput is "abcdef" of standard output, and "x" of standard error at first. Each stream
// breaks after two bytes, as one that nobody reads does.
type brokenOutput struct {
	rotav1connect.UnimplementedActionServiceHandler
}

func (brokenOutput) ReadActionOutput(_ context.Context, req *rotav1.ReadActionOutputRequest, stream *connect.ServerStream[rotav1.ReadActionOutputResponse]) error {
	const all = "abcdef"
	send := func(of rotav1.OutputStream, at uint64, data string) {
		_ = stream.Send(&rotav1.ReadActionOutputResponse{Chunk: &rotav1.OutputChunk{Stream: of, Offset: at, Data: []byte(data), Attempt: 3}})
	}
	if req.StderrOffset == 0 {
		send(rotav1.OutputStream_OUTPUT_STREAM_STDERR, 0, "x")
	}
	at := req.StdoutOffset
	if req.Since != nil {
		at = 0 // it begins there again
	}
	end := min(req.StdoutOffset+2, uint64(len(all)))
	if req.Since != nil || at > 0 && req.Attempt != 3 {
		end = uint64(len(all))
	}
	send(rotav1.OutputStream_OUTPUT_STREAM_STDOUT, at, all[at:at+(end-at)/2])
	send(rotav1.OutputStream_OUTPUT_STREAM_STDOUT, at+(end-at)/2, all[at+(end-at)/2:end])
	if end < uint64(len(all)) || req.Since != nil && req.Attempt == 0 {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// TestOutputGoesOnWhereItBroke: a pager reads when its user does, and a server waits less long.
func TestOutputGoesOnWhereItBroke(t *testing.T) {
	all := services{}
	all.add(rotav1connect.NewActionServiceHandler(brokenOutput{}, codec.ForHandler()))
	c, err := client.New(client.Config{Addrs: []string{serve(t, all)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for what, req := range map[string]*rotav1.ReadActionOutputRequest{
		"by offsets": {ActionId: 7}, "by a time": {ActionId: 7, Since: timestamppb.Now()},
	} {
		var out, errs bytes.Buffer
		sink := (&app{out: &out, err: &errs}).newSink(t.Context(), func(error) {})
		if err := readOutput(t.Context(), c, req, sink, nil); err != nil || out.String() != "abcdef" || errs.String() != "x" {
			t.Errorf("%s: %q and %q, %v", what, out.String(), errs.String(), err)
		}
	}
}

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
