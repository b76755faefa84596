package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// gangFlags are those of `rota run` for several actions that start at once.
type gangFlags struct {
	size   uint32
	spread string
}

func (f *gangFlags) addTo(fs *pflag.FlagSet) {
	fs.Uint32Var(&f.size, "gang", 0, "run the command as a gang of this many actions: all start at once or none does, and all end when one fails; each finds its place in ROTA_GANG_RANK and where they may meet in ROTA_GANG_ADDRESS")
	fs.StringVar(&f.spread, "gang-spread", "", `where the members of --gang run: "node" for each on a node of its own (default: on the fewest nodes)`)
}

// check refuses what cannot be a gang, and typing into several actions.
func (f *gangFlags) check(typedInto bool) error {
	switch {
	case f.size > 0 && typedInto:
		return usageErrorf("--stdin and --tty are for one action, and not for the members of a gang; leave out --gang")
	case f.spread != "" && f.spread != "node":
		return usageErrorf("--gang-spread %q is unknown; give node or leave it out", f.spread)
	case f.spread != "" && f.size == 0:
		return usageErrorf("--gang-spread is for the members of a gang; give --gang too")
	}
	return nil
}

// members are the actions that are submitted: one, or those of a gang.
func (f *gangFlags) members(spec *rotav1.ActionSpec) []*rotav1.ActionSpec {
	if f.size == 0 {
		return []*rotav1.ActionSpec{spec}
	}
	return client.Gang(spec, f.size, f.spread != "")
}

// runGang follows the members of a gang to their ends. The exit code is that of the first member
// that did not succeed by itself.
func (a *app) runGang(ctx context.Context, specs []*rotav1.ActionSpec) error {
	c, err := a.dial()
	if err != nil {
		return runFailed(err)
	}
	ids, err := c.Submit(ctx, specs...)
	if err != nil {
		return a.submitFailed(ctx, err)
	}
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer a.tellWaiting(ctx, func(ctx context.Context) string { return actionWaitsFor(ctx, c, ids[0]) })()
	sink := &gangSink{json: a.json(), out: &endingWriter{following, a.out}, errOut: &endingWriter{following, a.err}, end: end}
	ended, errs := make([]*rotav1.Action, len(ids)), make([]error, len(ids))
	var members sync.WaitGroup
	for rank, id := range ids {
		members.Go(func() {
			w := &rankWriter{sink: sink, prefix: strconv.Itoa(rank) + ": "}
			ended[rank], errs[rank] = c.Follow(following, id, w.update)
			w.flush()
		})
	}
	members.Wait()
	switch {
	case ctx.Err() != nil:
		return a.cancelGang(c, ids, errInterrupted)
	case sink.err != nil:
		return a.cancelGang(c, ids, &codeError{exitRota, sink.err})
	}
	if err := errors.Join(errs...); err != nil {
		return runFailed(err)
	}
	return a.runEnd(gangEnd(ended))
}

// gangEnd is the member that says how a gang ended: the first that did not succeed and was not ended
// for another one.
func gangEnd(members []*rotav1.Action) *rotav1.Action {
	end := members[0]
	for _, m := range members {
		switch {
		case m.State == rotav1.ActionState_ACTION_STATE_SUCCEEDED:
		case end.State == rotav1.ActionState_ACTION_STATE_SUCCEEDED, endedForGang(end) && !endedForGang(m),
			endedForGang(end) == endedForGang(m) && m.Revision < end.Revision:
			end = m
		}
	}
	return end
}

// endedForGang reports whether an action was ended because another one of its gang was.
func endedForGang(m *rotav1.Action) bool {
	return m.GetResult().GetReason() == rotav1.EndReason_END_REASON_GANG_ENDED
}

// cancelGang is cancelRun for a gang.
func (a *app) cancelGang(c *client.Client, ids []uint64, why *codeError) error {
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	defer cancel()
	if _, err := c.Cancel(ctx, ids...); err != nil {
		return &codeError{why.code, fmt.Errorf("%w, but gang %d could not be canceled: %s\nTry: rota action cancel %s",
			why.err, ids[0], describe(err, a.settings.addr), strings.Trim(fmt.Sprint(ids), "[]"))}
	}
	return &codeError{why.code, fmt.Errorf("%w: canceled gang %d", why.err, ids[0])}
}

// gangSink writes what the members of a gang say, a line at a time. What it cannot write ends the
// following of the gang.
type gangSink struct {
	json        bool
	out, errOut io.Writer
	end         context.CancelCauseFunc

	mu  sync.Mutex
	err error
}

func (s *gangSink) write(w io.Writer, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := w.Write(line)
	s.fail(err)
}

// fail is called with the lock held.
func (s *gangSink) fail(err error) {
	if s.err == nil && err != nil {
		s.err = err
		s.end(err)
	}
}

// rankWriter writes what one member says, each line with its rank.
type rankWriter struct {
	sink   *gangSink
	prefix string
	begun  [2][]byte // lines without an end, of standard output and standard error
}

func (w *rankWriter) update(msg *rotav1.RunActionResponse) {
	chunk := msg.GetOutput()
	if w.sink.json {
		if chunk == nil {
			w.sink.mu.Lock()
			defer w.sink.mu.Unlock()
			w.sink.fail(writeProto(w.sink.out, msg, false))
		}
		return
	}
	if chunk == nil {
		return
	}
	i := 0
	if chunk.Stream == rotav1.OutputStream_OUTPUT_STREAM_STDERR {
		i = 1
	}
	text := slices.Concat(w.begun[i], chunk.Data)
	for {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			w.begun[i] = text
			return
		}
		w.line(i, line)
		text = rest
	}
}

func (w *rankWriter) line(stream int, line []byte) {
	to := w.sink.out
	if stream == 1 {
		to = w.sink.errOut
	}
	w.sink.write(to, append(append([]byte(w.prefix), line...), '\n'))
}

// flush writes the lines that have no end.
func (w *rankWriter) flush() {
	for i, line := range w.begun {
		if len(line) > 0 {
			w.line(i, line)
		}
	}
}

// gangText says which member of which gang an action is.
func gangText(act *rotav1.Action) string {
	if act.GetGang() == 0 {
		return ""
	}
	return fmt.Sprintf("%d, rank %d of %d", act.Gang, act.Id-act.Gang, act.GetSpec().GetGangSize())
}
