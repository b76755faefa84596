package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/plan"
)

// tailBytes is how much of both streams together goes into an Exit.
const tailBytes = 4 << 10

// sweepEvery is how often the output of running attempts is cut to its bound. A
// stream may exceed it by what is written in between.
const sweepEvery = 250 * time.Millisecond

// punchUnit is the least that is dropped at once, and a multiple of any block
// size, as a hole is made of whole blocks.
const punchUnit = 64 << 10

// emptyName is the file that stands for every empty output.
const emptyName = "empty"

// sparePrefix begins the names of files that are on their way to another name, and of those that
// earlier releases kept to use again.
const sparePrefix = "spare."

// outputStore makes, bounds and drops the files attempts write to. Children
// write to them without anybody in between, so that output survives the death
// of agent and supervisor.
type outputStore struct {
	dir  string
	opts SuperviseOptions
	log  hclog.Logger

	mu      sync.Mutex
	running map[plan.Key]*outputFiles
	ended   []keptOutput // oldest first
	bytes   int64        // of ended
}

// outputFiles are the open files of a running attempt.
type outputFiles struct {
	file  [2]*os.File
	times outputTimes
}

func (o *outputFiles) close() {
	for _, f := range o.file {
		if f != nil {
			f.Close()
		}
	}
}

// keptOutput is the output of an ended attempt.
type keptOutput struct {
	key   plan.Key
	at    time.Time // of the end
	bytes int64     // on disk
}

// newOutputStore takes over what earlier supervisors left; all of it has ended.
func newOutputStore(o SuperviseOptions, log hclog.Logger) (*outputStore, error) {
	s := &outputStore{dir: filepath.Join(o.Dir, outputName), opts: o, log: log,
		running: make(map[plan.Key]*outputFiles)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	empty, err := os.OpenFile(filepath.Join(s.dir, emptyName), os.O_RDONLY|os.O_CREATE, modeEnded)
	if err != nil {
		return nil, fmt.Errorf("make empty output: %w", err)
	}
	empty.Close()
	timed, err := os.OpenFile(filepath.Join(s.dir, timedName), os.O_RDONLY|os.O_CREATE, modeEnded)
	if err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	timed.Close()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read output directory: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		if s.strayTimes(e.Name()) {
			os.Remove(path)
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), "."+Stdout.file())
		key, isKey := parseKey(name)
		st, err := os.Stat(path)
		switch {
		case strings.HasPrefix(e.Name(), sparePrefix):
			os.Remove(path)
		case ok && isKey && err == nil:
			_ = os.Chmod(path, modeEnded) // fails only if it is gone
			k := keptOutput{key: key, at: st.ModTime(), bytes: blocks(st) + diskBytes(s.path(key, Stderr)) + diskBytes(timesPath(o.Dir, key))}
			s.ended = append(s.ended, k)
			s.bytes += k.bytes
		}
	}
	slices.SortFunc(s.ended, func(a, b keptOutput) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return s, nil
}

// strayTimes reports whether a file has the times of output that is not there.
func (s *outputStore) strayTimes(file string) bool {
	name, ok := strings.CutSuffix(file, ".times")
	return strings.HasSuffix(file, ".times.next") || ok && !exists(filepath.Join(s.dir, name+"."+Stdout.file()))
}

func (s *outputStore) path(k plan.Key, st Stream) string { return OutputPath(s.opts.Dir, k, st) }

// open makes the files of an attempt. They belong to the attempt's user, so that
// a command can open /dev/stderr; the directory does not.
func (s *outputStore) open(k plan.Key, owner *userID) (*outputFiles, error) {
	if exists(s.path(k, Stdout)) {
		s.forget(k) // an attempt of that key ended and was forgotten
	}
	out := &outputFiles{times: outputTimes{path: timesPath(s.opts.Dir, k)}}
	for i, st := range []Stream{Stdout, Stderr} {
		f, err := s.openFile(s.path(k, st), owner)
		if err != nil {
			out.close()
			return nil, fmt.Errorf("make output file: %w", err)
		}
		out.file[i] = f
	}
	s.mu.Lock()
	s.running[k] = out
	s.mu.Unlock()
	return out, nil
}

// openFile makes a new file. No file is ever given to a second attempt: a process
// that has kept a descriptor could read and write the output of the next one.
func (s *outputStore) openFile(path string, owner *userID) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, modeRunning)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		if err := f.Chown(int(owner.uid), int(owner.gid)); err != nil {
			f.Close()
			os.Remove(path)
			return nil, err
		}
	}
	return f, nil
}

// end closes the files after the last process of the attempt and returns the
// last bytes of each.
func (s *outputStore) end(k plan.Key) (stdout, stderr []byte) {
	s.mu.Lock()
	out := s.running[k]
	delete(s.running, k)
	s.mu.Unlock()
	if out == nil {
		return nil, nil
	}
	kept := keptOutput{key: k, at: time.Now(), bytes: diskBytes(out.times.path)}
	stdout, stderr = tails(out.file[0], out.file[1])
	for _, f := range out.file {
		s.trim(f)
		kept.bytes += fileDiskBytes(f)
	}
	if err := out.file[0].Chmod(modeEnded); err != nil {
		s.log.Warn("output cannot be marked as ended", "error", err)
	}
	for i, f := range out.file {
		if size(f) == 0 {
			s.replaceEmpty(s.path(k, Stdout+Stream(i)))
		}
	}
	out.close()
	s.mu.Lock()
	s.ended = append(s.ended, kept)
	s.bytes += kept.bytes
	s.mu.Unlock()
	return stdout, stderr
}

// replaceEmpty gives an empty output the one empty file that all share, which
// nothing can write to. Readers find one or the other at any moment.
func (s *outputStore) replaceEmpty(path string) {
	next := filepath.Join(s.dir, sparePrefix+filepath.Base(path)) // the next supervisor removes it
	if os.Link(filepath.Join(s.dir, emptyName), next) == nil {
		_ = os.Rename(next, path)
	}
}

// sweep cuts running output to its bound and drops ended output above the
// limits.
func (s *outputStore) sweep(now time.Time) {
	s.mu.Lock()
	running := slices.Collect(maps.Values(s.running))
	n := 0
	for i, k := range s.ended {
		over := s.bytes > s.opts.OutputKeepBytes || len(s.ended)-i > s.opts.OutputKeepCount
		if !over && now.Sub(k.at) <= s.opts.OutputKeepFor {
			break
		}
		s.bytes -= k.bytes
		n++
	}
	drop := s.ended[:n:n]
	s.ended = s.ended[n:]
	s.mu.Unlock()
	for _, o := range running {
		for i, f := range o.file {
			s.noteTime(o, Stdout+Stream(i), now)
			s.trim(f) // a file closed meanwhile was trimmed by end
		}
	}
	for _, k := range drop {
		s.remove(k.key)
	}
}

// noteTime marks how much of a stream there is now. An attempt that ends meanwhile needs no mark.
func (s *outputStore) noteTime(o *outputFiles, stream Stream, now time.Time) {
	st, err := o.file[stream-Stdout].Stat()
	if err != nil {
		return
	}
	if err := o.times.note(stream, st.Size(), st.ModTime(), now); err != nil {
		s.log.Warn("the times of output cannot be noted", "file", o.times.path, "error", err)
	}
}

// forget removes the output of an ended attempt at once.
func (s *outputStore) forget(k plan.Key) {
	s.mu.Lock()
	s.ended = slices.DeleteFunc(s.ended, func(o keptOutput) bool {
		if o.key == k {
			s.bytes -= o.bytes
		}
		return o.key == k
	})
	s.mu.Unlock()
	s.remove(k)
}

// remove drops the files of an ended attempt. A reader that has them open reads on.
func (s *outputStore) remove(k plan.Key) {
	for _, path := range []string{timesPath(s.opts.Dir, k), s.path(k, Stdout), s.path(k, Stderr)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.log.Warn("old output cannot be removed", "error", err)
		}
	}
}

// trim makes a hole of what is older than the newest OutputBytesMax bytes.
// Offsets stay what they were.
func (s *outputStore) trim(f *os.File) {
	st, err := f.Stat()
	if err != nil {
		return
	}
	cut := (st.Size() - s.opts.OutputBytesMax + punchUnit - 1) / punchUnit * punchUnit
	if cut <= 0 || st.Size() <= s.opts.OutputBytesMax || fileDiskBytes(f) <= s.opts.OutputBytesMax {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		err = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, cut)
	})
	if err != nil {
		s.log.Warn("output cannot be bounded on this file system", "file", f.Name(), "error", err)
	}
}

// tails returns the last bytes of both streams, tailBytes together. What one
// leaves the other may use; if both are long, each gets half.
func tails(stdout, stderr *os.File) (out, err []byte) {
	so, se := size(stdout), size(stderr)
	ne := min(se, max(tailBytes/2, tailBytes-so))
	no := min(so, tailBytes-ne)
	return readTail(stdout, so, no), readTail(stderr, se, ne)
}

func readTail(f *os.File, size, n int64) []byte {
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	got, err := f.ReadAt(b, size-n)
	if err != nil && err != io.EOF {
		return nil
	}
	return b[:got]
}

func size(f *os.File) int64 {
	st, err := f.Stat()
	if err != nil {
		return 0
	}
	return st.Size()
}

func fileDiskBytes(f *os.File) int64 {
	st, err := f.Stat()
	if err != nil {
		return 0
	}
	return blocks(st)
}

func diskBytes(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return blocks(st)
}

// blocks is what a file occupies: st_blocks counts units of 512 bytes.
func blocks(st os.FileInfo) int64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return st.Size()
}

// lastBytes returns the tails of what an attempt wrote that no supervisor saw
// the end of.
func (s *outputStore) lastBytes(k plan.Key) (stdout, stderr []byte) {
	out, err := os.Open(s.path(k, Stdout))
	if err != nil {
		return nil, nil
	}
	defer out.Close()
	serr, err := os.Open(s.path(k, Stderr))
	if err != nil {
		return nil, nil
	}
	defer serr.Close()
	return tails(out, serr)
}
