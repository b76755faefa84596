package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// checkedWriter remembers the first error of writing, so that no command has to check whether each
// line of its result was written.
type checkedWriter struct {
	to    io.Writer
	first atomic.Pointer[error] // a write may still be under way when the command ends
}

// Write implements io.Writer.
func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		w.first.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (w *checkedWriter) failure() error {
	if err := w.first.Load(); err != nil {
		return *err
	}
	return nil
}

// unchecked is the file behind a checkedWriter, for what needs a file.
func unchecked(w io.Writer) io.Writer {
	if checked, ok := w.(*checkedWriter); ok {
		return checked.to
	}
	return w
}

// endingWriter passes writes on until its context is done. A reader that does not read, such as a
// pager, must not keep a command from ending. What is written must not change afterwards.
type endingWriter struct {
	ctx context.Context
	to  io.Writer
}

// Write implements io.Writer.
func (w *endingWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil { // a write may be under way
		return 0, context.Cause(w.ctx)
	}
	type result struct {
		n   int
		err error
	}
	written := make(chan result, 1)
	go func() {
		n, err := w.to.Write(p)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-w.ctx.Done():
		return 0, context.Cause(w.ctx)
	}
}

// print writes the result of a command: rows for people, or the message as
// JSON.
func (a *app) print(msg proto.Message, header []string, rows [][]string) error {
	if a.json() {
		return writeProto(a.out, msg, true)
	}
	writeTable(a.out, header, rows)
	return nil
}

// printLine writes one message of a stream.
func (a *app) printLine(msg proto.Message, line string) error {
	if a.json() {
		return writeProto(a.out, msg, false)
	}
	_, err := fmt.Fprintln(a.out, printable(line))
	return err
}

// printCSV writes a result as comma-separated values.
func (a *app) printCSV(header []string, rows [][]string) error {
	return csv.NewWriter(a.out).WriteAll(append([][]string{header}, rows...))
}

// csvFlag adds the flag for printCSV. With -o json, it is refused; it goes before a format that a variable
// or the config file says.
func (a *app) csvFlag(cmd *cobra.Command, asCSV *bool, usage string) {
	cmd.Flags().BoolVar(asCSV, "csv", false, usage)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *asCSV && a.json() && a.given["output"] {
			return usageErrorf("--csv and -o json are two formats; leave out one of them")
		}
		return nil
	}
}

// printValue writes a result that is no message of the API.
func (a *app) printValue(v any, header []string, rows [][]string) error {
	if a.json() {
		return writeJSON(a.out, v)
	}
	writeTable(a.out, header, rows)
	return nil
}

func (a *app) json() bool { return a.settings.output == "json" }

func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", printableJSON(b))
	return err
}

// writeProto writes a message as the API's own JSON. protojson varies its white
// space on purpose, so it is normalized for scripts.
func writeProto(w io.Writer, msg proto.Message, indent bool) error {
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(msg)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if indent {
		err = json.Indent(&b, raw, "", "  ")
	} else {
		err = json.Compact(&b, raw)
	}
	if err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(printableJSON(b.Bytes()))
	return err
}

// writeTable writes aligned columns without rules, which cut and awk can read.
func writeTable(w io.Writer, header []string, rows [][]string) {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(header, "\t")))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	t.Flush() // a bytes.Buffer takes everything
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// field is one line of the description of one thing.
type field struct{ name, value string }

// block is the value of a field that is shown on lines of its own, indented, so that no
// line of it can be taken for another field.
func block(text string) string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return ""
	}
	return "\n    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// fieldText is the value of a field as it is written: a block keeps its lines.
func fieldText(value string) string {
	if strings.Contains(strings.ReplaceAll(value, "\n    ", ""), "\n") {
		return printable(value)
	}
	return printableLines(value)
}

// printFields writes one thing: a line per field that has a value, or JSON.
func (a *app) printFields(msg proto.Message, fields []field) error {
	if a.json() {
		return writeProto(a.out, msg, true)
	}
	a.writeFields(fields)
	return nil
}

// writeFields writes a line per field that has a value.
func (a *app) writeFields(fields []field) {
	width := 0
	for _, f := range fields {
		if f.value != "" {
			width = max(width, len(f.name))
		}
	}
	for _, f := range fields {
		if f.value != "" {
			fmt.Fprintf(a.out, "%-*s  %s\n", width, printable(f.name), fieldText(f.value))
		}
	}
}

// isTerminal reports whether a person looks at w, on something that knows escape codes.
func isTerminal(w io.Writer) bool {
	f, ok := unchecked(w).(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS) // a device such as /dev/null is none
	return err == nil
}

// enumWord turns ACTION_STATE_QUEUED into queued.
func enumWord(e fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(e.String(), prefix))
}

func formatTime(t *timestamppb.Timestamp) string {
	if t == nil || (t.Seconds == 0 && t.Nanos == 0) {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// formatAge is the time between two times, rounded for reading. The second may be earlier
// by the clock of another leader.
func formatAge(from, to *timestamppb.Timestamp) string {
	if from == nil || to == nil {
		return ""
	}
	return formatDuration(max(0, to.AsTime().Sub(from.AsTime())))
}

// plural writes 1 agent, 2 agents, 2 trajectories.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		noun = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func formatDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// formatCPUs writes 0,1,2,5 as 0-2,5.
func formatCPUs(cpus []uint32) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d", cpus[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", cpus[j])
		}
		i = j + 1
	}
	return b.String()
}
