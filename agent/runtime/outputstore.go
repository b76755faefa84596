package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// tailBytes is how much of both streams together goes into an Exit.
const tailBytes = 4 << 10

// sweepEvery is how often the output of running attempts is cut to its bound. A
// stream may exceed it by what is written in between.
const sweepEvery = 250 * time.Millisecond

// punchUnit is the least that is dropped at once, and a multiple of any block
// size, as a hole is made of whole blocks.
const punchUnit = 64 << 10

// outputStore makes, bounds and drops the files attempts write to. Children
// write to them without anybody in between, so that output survives the death
// of agent and supervisor.
type outputStore struct {
	dir  string
	opts SuperviseOptions
	user *userID
	log  hclog.Logger

	mu      sync.Mutex
	running map[Key]*outputFiles
	ended   []keptOutput // oldest first
	bytes   int64        // of ended
}

// outputFiles are the open files of a running attempt.
type outputFiles struct{ file [2]*os.File }

func (o *outputFiles) close() {
	for _, f := range o.file {
		if f != nil {
			f.Close()
		}
	}
}

type keptOutput struct {
	dir   string
	at    time.Time // of the end
	bytes int64     // on disk
}

// newOutputStore takes over what earlier supervisors left; all of it has ended.
func newOutputStore(o SuperviseOptions, user *userID, log hclog.Logger) (*outputStore, error) {
	s := &outputStore{dir: filepath.Join(o.Dir, outputName), opts: o, user: user, log: log,
		running: make(map[Key]*outputFiles)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read output directory: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(s.dir, e.Name())
		st, err := os.Stat(dir)
		if err != nil {
			continue
		}
		k := keptOutput{dir: dir, at: st.ModTime()}
		for _, name := range []string{Stdout.file(), Stderr.file()} {
			k.bytes += diskBytes(filepath.Join(dir, name))
		}
		os.Chmod(dir, dirEnded) // fails only if it is gone
		s.ended = append(s.ended, k)
		s.bytes += k.bytes
	}
	slices.SortFunc(s.ended, func(a, b keptOutput) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return s, nil
}

// open makes the files of an attempt. They belong to the attempt's user, so that
// a command can open /dev/stderr; the directory does not.
func (s *outputStore) open(k Key) (*outputFiles, error) {
	dir := filepath.Join(s.dir, k.String())
	if err := os.Mkdir(dir, dirRunning); errors.Is(err, os.ErrExist) {
		// An attempt of that key ended and was forgotten: this is its successor.
		s.drop(dir)
		err = os.Mkdir(dir, dirRunning)
		if err != nil {
			return nil, fmt.Errorf("make output directory: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	out := new(outputFiles)
	for i, st := range []Stream{Stdout, Stderr} {
		f, err := os.OpenFile(filepath.Join(dir, st.file()), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		if err == nil && s.user != nil {
			err = f.Chown(int(s.user.uid), int(s.user.gid))
		}
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

// end closes the files after the last process of the attempt and returns the
// last bytes of each.
func (s *outputStore) end(k Key) (stdout, stderr []byte) {
	s.mu.Lock()
	out := s.running[k]
	delete(s.running, k)
	s.mu.Unlock()
	if out == nil {
		return nil, nil
	}
	kept := keptOutput{dir: filepath.Join(s.dir, k.String()), at: time.Now()}
	for _, f := range out.file {
		s.trim(f)
		kept.bytes += fileDiskBytes(f)
	}
	stdout, stderr = tails(out.file[0], out.file[1])
	out.close()
	if err := os.Chmod(kept.dir, dirEnded); err != nil {
		s.log.Warn("output cannot be marked as ended", "error", err)
	}
	s.mu.Lock()
	s.ended = append(s.ended, kept)
	s.bytes += kept.bytes
	s.mu.Unlock()
	return stdout, stderr
}

// sweep cuts running output to its bound and drops ended output above the
// limits.
func (s *outputStore) sweep(now time.Time) {
	s.mu.Lock()
	var files []*os.File
	for _, o := range s.running {
		files = append(files, o.file[:]...)
	}
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
	for _, f := range files {
		s.trim(f) // a file closed meanwhile was trimmed by end
	}
	for _, k := range drop {
		if err := removeOutput(k.dir); err != nil {
			s.log.Warn("old output cannot be removed", "error", err)
		}
	}
}

// drop removes kept output at once.
func (s *outputStore) drop(dir string) {
	s.mu.Lock()
	s.ended = slices.DeleteFunc(s.ended, func(k keptOutput) bool {
		if k.dir == dir {
			s.bytes -= k.bytes
		}
		return k.dir == dir
	})
	s.mu.Unlock()
	if err := removeOutput(dir); err != nil {
		s.log.Warn("old output cannot be removed", "error", err)
	}
}

// removeOutput deletes the output of an attempt. Who is not root has to be let
// into a directory that is marked as ended.
func removeOutput(dir string) error {
	if err := os.Chmod(dir, dirRunning); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
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
	raw.Control(func(fd uintptr) {
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
func (s *outputStore) lastBytes(k Key) (stdout, stderr []byte) {
	dir := filepath.Join(s.dir, k.String())
	out, err := os.Open(filepath.Join(dir, Stdout.file()))
	if err != nil {
		return nil, nil
	}
	defer out.Close()
	serr, err := os.Open(filepath.Join(dir, Stderr.file()))
	if err != nil {
		return nil, nil
	}
	defer serr.Close()
	return tails(out, serr)
}
