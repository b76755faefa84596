package cli

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) actionWatchCmd() *cobra.Command {
	var action, trajectory, after uint64
	cmd := &cobra.Command{
		Use: "watch", Short: "Stream state changes as they are committed", Args: exactly(),
		Long: `Streams every state change in order, without gaps or duplicates, until you interrupt it.
After a lost connection, it continues at the same place.`,
		Example: "  rota action watch\n  rota action watch --after 1200 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &rotav1.WatchActionsRequest{
				Namespace: a.settings.namespace, ActionId: action, TrajectoryId: trajectory,
			}
			if cmd.Flags().Changed("after") {
				req.AfterRevision = proto.Uint64(after)
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			for event, err := range c.Watch(cmd.Context(), req) {
				if err != nil {
					return err
				}
				if err := a.printLine(event, eventText(event)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&action, "action", 0, "show only this action")
	cmd.Flags().Uint64Var(&trajectory, "trajectory", 0, "show only actions of this trajectory")
	cmd.Flags().Uint64Var(&after, "after", 0, "start after this revision instead of at the present")
	return cmd
}

// logsCmd is "rota logs", which is "rota action logs", too: path is how its examples call it.
func (a *app) logsCmd(path string) *cobra.Command {
	var (
		follow  bool
		tail    int
		attempt uint32
		since   string
		times   bool
	)
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print the output of an action, from its node", Args: exactly("ID"),
		Long: `Prints standard output to standard output and standard error to standard error. --tail says
with how many of the last lines of each stream to begin, and --since with which time: a time such
as 2026-03-01T12:00:00Z, or how long ago, such as 10m. --timestamps begins each line with the time
at which it had been written. The times are of the node's clock, to about a quarter of a second, and
coarser for the beginning of long output. If the node no longer has the output, it prints the last
4 KiB, which the cluster stores, without times.

With --follow, it ends with the action, and Ctrl-C ends it sooner. The exit code is 0 however
the action ended; "rota attach" exits with the action's.`,
		Example: "  rota " + path + " 42\n  rota " + path + " 42 --follow --tail 20\n  rota " + path + " 42 --since 10m --timestamps",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			if follow && attempt != 0 {
				return usageErrorf("--follow shows every attempt; give --follow or --attempt, not both")
			}
			from, err := sinceTime(since, time.Now())
			if err != nil {
				return err
			}
			following, end := context.WithCancelCause(ctx)
			defer end(nil)
			sink := a.newSink(following, end)
			sink.times, sink.since = times, !from.IsZero()
			if follow {
				at := client.From{Since: from, Times: times}
				_, err := a.followTail(following, c, id, tail, at, sink, sink.update)
				return err
			}
			req := &rotav1.ReadActionOutputRequest{ActionId: id, Attempt: attempt, Times: times}
			if !from.IsZero() {
				req.Since = timestamppb.New(from)
			}
			return a.logs(following, c, req, tail, sink)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new output until the action has ended")
	cmd.Flags().IntVar(&tail, "tail", -1, "begin with this many of the last lines of each stream; -1: with all that the node keeps")
	cmd.Flags().Uint32Var(&attempt, "attempt", 0, "attempt to read; 0: the newest")
	cmd.Flags().StringVar(&since, "since", "", "leave out what was written before this time, or longer ago than this, such as 10m")
	cmd.Flags().BoolVar(&times, "timestamps", false, "begin each line with the time at which it had been written")
	return cmd
}

// sinceTime reads a time, or how long before now it was; "" is the zero time.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usageErrorf("--since %s: give a time such as 2026-03-01T12:00:00Z, or how long ago, such as 10m", text)
	}
	return at, nil
}

// nodePatience is how long the output of an action that has ended is asked of its node, whose agent may
// be restarting.
const nodePatience = 3 * time.Second

func (a *app) logs(ctx context.Context, c *client.Client, req *rotav1.ReadActionOutputRequest, tail int, sink *outputSink) error {
	// Of an action that has ended, the cluster has the end of the output: no need to wait for long for
	// its node.
	begin := time.Now()
	stored := func(err error) bool {
		if client.Detail(err).GetReason() != "NODE_UNREACHABLE" || time.Since(begin) < nodePatience {
			return false
		}
		action, err := c.Get(ctx, req.ActionId)
		return err == nil && action.Result != nil
	}
	var err error
	if last := (&lastLines{most: tail}); tail >= 0 {
		err = readOutput(ctx, c, req, last, stored)
		last.print(sink)
	} else {
		err = readOutput(ctx, c, req, sink, stored)
	}
	switch {
	case sink.err != nil:
		return sink.err
	case err == nil || sink.wrote || ctx.Err() != nil || client.Detail(err).GetReason() == "OUTPUT_HAS_NO_TIMES":
		return err
	}
	action, getErr := c.Get(ctx, req.ActionId)
	if getErr != nil {
		return getErr
	}
	if action.Result == nil {
		return err
	}
	a.say("%s; these are the last bytes that the cluster has stored", describe(err, a.settings.addr))
	sink.write(&rotav1.OutputChunk{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDOUT, Data: action.Result.StdoutTail})
	sink.write(&rotav1.OutputChunk{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDERR, Data: action.Result.StderrTail})
	return sink.err
}

// readOutput reads output to its end. Where unless returns true for an error of the first message, the
// reading is not tried again. A stream that breaks after its first message is opened again where it was:
// servers end a stream that nobody reads, and a pager reads when its user does.
func readOutput(ctx context.Context, c *client.Client, req *rotav1.ReadActionOutputRequest, sink chunkSink, unless func(error) bool) error {
	r := &outputReader{req: proto.CloneOf(req), sink: sink, next: map[rotav1.OutputStream]uint64{}}
	for {
		before := r.bytes
		err := r.read(ctx, c, unless)
		if err == nil || sink.failed() != nil || r.bytes == before || !lostConnection(err) {
			return err
		}
		r.goOn()
	}
}

// outputReader reads the output of one attempt.
type outputReader struct {
	req   *rotav1.ReadActionOutputRequest
	sink  chunkSink
	next  map[rotav1.OutputStream]uint64 // where the next piece of each stream begins
	bytes uint64                         // that were written to the sink
}

// read opens the stream and reads what comes.
func (r *outputReader) read(ctx context.Context, c *client.Client, unless func(error) bool) error {
	stream, m, err := client.FirstUnless(ctx, c, func(ctx context.Context) (*connect.ServerStreamForClient[rotav1.ReadActionOutputResponse], error) {
		return c.Actions.ReadActionOutput(ctx, r.req)
	}, unless)
	if err != nil {
		return err
	}
	defer stream.Close()
	for more := m != nil; more; more = stream.Receive() {
		r.write(stream.Msg().GetChunk())
		if err := r.sink.failed(); err != nil {
			return err
		}
	}
	return stream.Err()
}

// write passes on what is new of a piece.
func (r *outputReader) write(chunk *rotav1.OutputChunk) {
	if chunk == nil {
		return
	}
	end := chunk.Offset + uint64(len(chunk.Data))
	if next := r.next[chunk.Stream]; chunk.Offset < next {
		chunk.Data = chunk.Data[min(next-chunk.Offset, uint64(len(chunk.Data))):]
		chunk.Offset = next
	}
	if len(chunk.Data) == 0 {
		return
	}
	r.sink.write(chunk)
	r.req.Attempt, r.next[chunk.Stream] = chunk.Attempt, end
	r.bytes += uint64(len(chunk.Data))
}

// goOn asks for what has not come. What begins at a time has no offsets, and comes again.
func (r *outputReader) goOn() {
	if r.req.Since != nil {
		return
	}
	r.req.StdoutOffset = max(r.req.StdoutOffset, r.next[rotav1.OutputStream_OUTPUT_STREAM_STDOUT])
	r.req.StderrOffset = max(r.req.StderrOffset, r.next[rotav1.OutputStream_OUTPUT_STREAM_STDERR])
}

// outputSink writes the two streams of an action to those of this process. What it cannot write ends
// the following of the action.
type outputSink struct {
	a      *app
	out    io.Writer
	errOut io.Writer
	end    context.CancelCauseFunc
	times  bool // lines begin with theirs
	since  bool // what is missing at the beginning was not asked for
	wrote  bool
	action *rotav1.Action // newest state seen
	queued atomic.Uint64  // the action while it is queued
	next   map[place]uint64
	inLine map[rotav1.OutputStream]bool // the last piece ended within a line
	err    error                        // first one of writing
}

// newSink returns a sink for as long as the action is followed, under ctx, which end ends.
func (a *app) newSink(ctx context.Context, end context.CancelCauseFunc) *outputSink {
	return &outputSink{a: a, out: &endingWriter{ctx, a.out}, errOut: &endingWriter{ctx, a.err}, end: end}
}

// place is one stream of one attempt.
type place struct {
	attempt uint32
	stream  rotav1.OutputStream
}

// update takes one message of an action that is followed.
func (s *outputSink) update(msg *rotav1.RunActionResponse) {
	if chunk := msg.GetOutput(); chunk != nil {
		s.write(chunk)
		return
	}
	s.action = msg.GetAction()
	s.queued.Store(0)
	if s.action.GetState() == rotav1.ActionState_ACTION_STATE_QUEUED {
		s.queued.Store(s.action.Id)
	}
	if s.a.json() {
		s.fail(writeProto(s.out, msg, false))
	}
}

func (s *outputSink) write(chunk *rotav1.OutputChunk) {
	if len(chunk.GetData()) == 0 {
		return
	}
	s.wrote = true
	if s.a.json() {
		s.fail(writeProto(s.out, &rotav1.RunActionResponse{
			Update: &rotav1.RunActionResponse_Output{Output: chunk},
		}, false))
		return
	}
	at := place{chunk.Attempt, chunk.Stream}
	_, begun := s.next[at]
	if dropped := chunk.Offset - s.next[at]; chunk.Offset > s.next[at] && (begun || !s.since) {
		s.a.say("%s of older output were dropped", formatSize(dropped))
	}
	s.begin(at, chunk.Offset+uint64(len(chunk.Data)))
	to := s.out
	if chunk.Stream == rotav1.OutputStream_OUTPUT_STREAM_STDERR {
		to = s.errOut
	}
	data := chunk.Data
	if s.times && chunk.Time != nil {
		data = s.stamp(chunk)
	}
	_, err := to.Write(data)
	s.fail(err)
}

// stamp returns a piece with its time before each line that begins in it.
func (s *outputSink) stamp(chunk *rotav1.OutputChunk) []byte {
	if s.inLine == nil {
		s.inLine = map[rotav1.OutputStream]bool{}
	}
	prefix := formatTime(chunk.Time) + " "
	var b []byte
	for line := range bytes.Lines(chunk.Data) {
		if !s.inLine[chunk.Stream] {
			b = append(b, prefix...)
		}
		b = append(b, line...)
		s.inLine[chunk.Stream] = line[len(line)-1] != '\n'
	}
	return b
}

// begin says where the next piece of a stream begins, if nothing is dropped.
func (s *outputSink) begin(at place, offset uint64) {
	if s.next == nil {
		s.next = map[place]uint64{}
	}
	s.next[at] = offset
}

// failed implements chunkSink.
func (s *outputSink) failed() error { return s.err }

func (s *outputSink) fail(err error) {
	if s.err == nil && err != nil {
		s.err = err
		s.end(err)
	}
}
