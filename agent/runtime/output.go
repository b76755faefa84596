package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/plan"
)

// Stream is one of the two outputs of an attempt.
type Stream uint8

// The values are those of rota.v1.OutputStream.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) file() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Chunk is a piece of output. A jump of Offset from the end of the one before
// it says that older output was dropped.
type Chunk struct {
	Stream Stream
	Offset int64
	Data   []byte // valid until the next call
	// At is when it had been written, at the latest. Zero without WithTimes and Since.
	At time.Time
}

// ErrNoOutput: the attempt is not known here, or its output was dropped.
var ErrNoOutput = errors.New("no output of this attempt on this node")

const (
	chunkBytes = 32 << 10
	pollEvery  = 20 * time.Millisecond
	// modeRunning and modeEnded are the permissions of the stdout file. They are
	// how a reader in another process learns of the end, without a supervisor to
	// ask.
	modeRunning = 0o600
	modeEnded   = 0o400
)

// Output reads what an attempt wrote, while it runs and after. It needs no
// supervisor. It is for one goroutine.
type Output struct {
	path   [2]string
	files  [2]*os.File
	offset [2]int64
	next   int // the file to look into first, so that none waits for the other
	buf    []byte
	times  string     // path of the marks
	index  *timeIndex // nil: nobody asks for times
}

// OutputPath is where a stream of an attempt is, in a supervisor's directory.
func OutputPath(dir string, key plan.Key, s Stream) string {
	return filepath.Join(dir, outputName, key.String()+"."+s.file())
}

// OpenOutput opens the output of an attempt for reading from these offsets.
// Errors: ErrNoOutput.
func OpenOutput(dir string, key plan.Key, stdoutOffset, stderrOffset int64) (*Output, error) {
	o := &Output{offset: [2]int64{stdoutOffset, stderrOffset}, buf: make([]byte, chunkBytes),
		times: timesPath(dir, key)}
	for i, s := range []Stream{Stdout, Stderr} {
		o.path[i] = OutputPath(dir, key, s)
		f, err := os.Open(o.path[i])
		if err != nil {
			o.Close()
			if errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("%w: %s", ErrNoOutput, key)
			}
			return nil, fmt.Errorf("open output: %w", err)
		}
		o.files[i] = f
	}
	return o, nil
}

// Close releases the files.
func (o *Output) Close() error {
	for _, f := range o.files {
		if f != nil {
			f.Close()
		}
	}
	return nil
}

// Next returns the next piece of either stream. At the end of what there is it
// returns io.EOF; if follow, only once the attempt has ended too, and until then
// it waits for more or for ctx.
func (o *Output) Next(ctx context.Context, follow bool) (Chunk, error) {
	for {
		// Asked before reading: what was written before the end is then read.
		ended := o.ended()
		for range o.files {
			i := o.next
			o.next = 1 - i
			n, err := o.read(i)
			if err != nil {
				return Chunk{}, err
			}
			if n > 0 {
				c := Chunk{Stream: Stdout + Stream(i), Offset: o.offset[i]}
				if o.index != nil {
					if n, c.At, err = o.timed(i, o.offset[i], n); err != nil {
						return Chunk{}, err
					}
				}
				c.Data = o.buf[:n]
				o.offset[i] += int64(n)
				return c, nil
			}
		}
		if ended || !follow {
			return Chunk{}, io.EOF
		}
		select {
		case <-ctx.Done():
			return Chunk{}, ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// ended reports whether nothing will be written any more. Dropped output has
// ended too.
func (o *Output) ended() bool {
	st, err := os.Stat(o.path[0])
	return err != nil || st.Mode().Perm() == modeEnded
}

// read fills the buffer from where this stream is, past what was dropped. What
// was dropped is a hole, and there is no other: the files are only appended to.
func (o *Output) read(i int) (int, error) {
	f := o.files[i]
	for {
		start, err := nextData(f, o.offset[i])
		if err != nil {
			return 0, err
		}
		if start < 0 {
			return 0, nil
		}
		n, err := f.ReadAt(o.buf, start)
		if err != nil && err != io.EOF {
			return 0, fmt.Errorf("read output: %w", err)
		}
		// A hole punched meanwhile reads as zeros: look again.
		if again, err := nextData(f, start); err == nil && again == start {
			o.offset[i] = start
			return n, nil
		}
	}
}

// nextData returns the first offset at or after from that has data; -1: none.
func nextData(f *os.File, from int64) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read output: %w", err)
	}
	return at, nil
}
