package workload

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrTrace: a line of a trace is not what it should be.
var ErrTrace = errors.New("trace")

// Session is the turns of one trajectory of rollouts.csv.
type Session struct {
	Name  string
	Turns []SessionTurn
}

// SessionTurn is a line of rollouts.csv. Times are nanoseconds. Generate is 0
// where the trace does not know it; Gap is what passed before the turn since
// the end of the last turn that it does know.
type SessionTurn struct {
	Turn                int64
	Start               int64
	InputTokens, Output int64
	Generate, Gap       int64
	Stop                string
}

// Bounds of what a trace may say, far above what is real.
const (
	countMax     = 1 << 40
	traceTimeMax = 10 * 365 * 24 * 3600 * 1_000_000_000
)

// lines reads a CSV file with a header, column by name.
type lines struct {
	in     *csv.Reader
	at     map[string]int
	fields []string
	err    error
}

// open reads the header. Other columns than those needed are passed over.
func open(r io.Reader, columns ...string) (*lines, error) {
	l := &lines{in: csv.NewReader(r), at: make(map[string]int)}
	l.in.ReuseRecord = true
	header, err := l.in.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it is empty, without even a header", ErrTrace)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	for i, name := range header {
		if _, ok := l.at[name]; ok {
			return nil, fmt.Errorf("%w: the header has two columns %q", ErrTrace, name)
		}
		l.at[name] = i
	}
	for _, name := range columns {
		if _, ok := l.at[name]; !ok {
			return nil, fmt.Errorf("%w: the header has no column %q, only %q", ErrTrace, name, header)
		}
	}
	return l, nil
}

// next reads a line; false is the end, or an error in err.
func (l *lines) next() bool {
	if l.err != nil {
		return false
	}
	fields, err := l.in.Read()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			l.err = fmt.Errorf("%w: %w", ErrTrace, err)
		}
		return false
	}
	l.fields = fields
	return true
}

// fail notes the first error.
func (l *lines) fail(column, format string, args ...any) {
	if l.err == nil {
		line, _ := l.in.FieldPos(l.at[column])
		l.err = fmt.Errorf("%w: line %d: %s %q: %s", ErrTrace, line, column, l.fields[l.at[column]], fmt.Sprintf(format, args...))
	}
}

func (l *lines) text(column string) string {
	s := l.fields[l.at[column]]
	if len(s) > 256 {
		l.fail(column, "longer than 256 bytes")
		return ""
	}
	return string([]byte(s)) // the reader uses its memory again
}

// number reads a non-negative decimal times scale.
func (l *lines) number(column string, scale, most int64) int64 {
	n, err := parseDecimal(l.fields[l.at[column]], scale)
	switch {
	case err != nil:
		l.fail(column, "%v", err)
	case n > most:
		l.fail(column, "above %d", most/scale)
	default:
		return n
	}
	return 0
}

// count reads a whole number. Traces that went through a spreadsheet may write
// it with zeros after a point.
func (l *lines) count(column string) int64 {
	n := l.number(column, 1000, countMax)
	if n%1000 != 0 {
		l.fail(column, "not a whole number")
	}
	return n / 1000
}

func (l *lines) seconds(column string) int64 {
	return l.number(column, 1_000_000_000, traceTimeMax)
}

// ReadSessions reads rollouts.csv. The lines of a trajectory stand together,
// in the order of their turns.
func ReadSessions(r io.Reader) ([]Session, error) {
	l, err := open(r, "trajectory", "turn", "start_s", "input_tokens", "output_tokens", "generate_s", "gap_s", "stop")
	if err != nil {
		return nil, err
	}
	var out []Session
	seen := make(map[string]bool)
	for l.next() {
		name := l.text("trajectory")
		t := SessionTurn{
			Turn: l.count("turn"), Start: l.seconds("start_s"),
			InputTokens: l.count("input_tokens"), Output: l.count("output_tokens"),
			Generate: l.seconds("generate_s"), Gap: l.seconds("gap_s"), Stop: l.text("stop"),
		}
		if len(out) == 0 || out[len(out)-1].Name != name {
			if seen[name] {
				l.fail("trajectory", "its lines do not stand together")
			}
			seen[name] = true
			out = append(out, Session{Name: name})
		}
		s := &out[len(out)-1]
		if n := len(s.Turns); n > 0 && t.Turn <= s.Turns[n-1].Turn {
			l.fail("turn", "not after turn %d", s.Turns[n-1].Turn)
		} else if n > 0 && t.Start < s.Turns[n-1].Start {
			l.fail("start_s", "before the turn above")
		}
		if len(s.Turns) == turnsMax {
			l.fail("turn", "more than %d turns", turnsMax)
		}
		s.Turns = append(s.Turns, t)
	}
	if l.err != nil {
		return nil, l.err
	}
	return slices.Clip(out), nil
}

// Pod is one request for GPUs: so many of them, or a share of one in thousandths.
type Pod struct{ GPUs, GPUMilli, MemoryMiB int64 }

// ReadPods reads openb_pods.csv.
func ReadPods(r io.Reader) (pods []Pod, err error) {
	l, err := open(r, "memory_mib", "num_gpu", "gpu_milli")
	if err != nil {
		return nil, err
	}
	for l.next() {
		pods = append(pods, Pod{GPUs: l.count("num_gpu"), GPUMilli: l.count("gpu_milli"), MemoryMiB: l.count("memory_mib")})
	}
	return pods, l.err
}

// ReadLoads reads model_load.csv: what loads of models took, in nanoseconds.
func ReadLoads(r io.Reader) (ns []int64, err error) {
	l, err := open(r, "load_ms")
	if err != nil {
		return nil, err
	}
	for l.next() {
		ns = append(ns, l.number("load_ms", 1_000_000, traceTimeMax))
	}
	return ns, l.err
}
