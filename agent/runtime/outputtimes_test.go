package runtime_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/runtime"
)

// timesOf is the file in which a supervisor notes when an attempt wrote what.
func timesOf(dir string, action uint64) string {
	return strings.TrimSuffix(runtime.OutputPath(dir, key(action), runtime.Stdout), "stdout") + "times"
}

func TestOutputSinceATime(t *testing.T) {
	o := options(t.TempDir(), "")
	c := dial(t, o)
	fifo := filepath.Join(o.Dir, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	start(t, c, shell(key(1), "echo one; cat "+fifo+" >/dev/null; echo two"))
	waitFor(t, "a mark", func() bool { return exists(timesOf(o.Dir, 1)) })
	marked := time.Now()
	for time.Since(marked) < 50*time.Millisecond { // the clock of file systems is coarse
		time.Sleep(time.Millisecond)
	}
	between := time.Now()
	if err := os.WriteFile(fifo, nil, 0); err != nil {
		t.Fatal(err)
	}
	nextExit(t, c)
	for _, tt := range []struct {
		since time.Time
		want  string
	}{{began.Add(-time.Hour), "one\ntwo\n"}, {between.Add(-20 * time.Millisecond), "two\n"}, {time.Now().Add(time.Hour), ""}} {
		out := openOutput(t, o.Dir, key(1), 0, 0)
		if err := out.Since(tt.since); err != nil {
			t.Fatal(err)
		}
		if text, _ := readAll(t, out, false); text[0] != tt.want {
			t.Errorf("since %v: %q, want %q", tt.since, text[0], tt.want)
		}
	}
	out := openOutput(t, o.Dir, key(1), 0, 0)
	if err := out.WithTimes(); err != nil {
		t.Fatal(err)
	}
	first, err := out.Next(t.Context(), false)
	if err != nil || string(first.Data) != "one\n" || first.At.Before(began.Add(-time.Second)) || first.At.After(marked) {
		t.Errorf("the first piece is %q of %v, %v; it began at %v and had a mark by %v", first.Data, first.At, err, began, marked)
	}
	second, err := out.Next(t.Context(), false)
	if err != nil || string(second.Data) != "two\n" || second.At.Before(marked.Add(-time.Second)) || second.At.After(time.Now()) {
		t.Errorf("the second piece is %q of %v, %v", second.Data, second.At, err)
	}
}

// A short attempt needs no marks: the time of its file is enough. What an earlier release kept has
// none either, and says so.
func TestOutputWithoutMarks(t *testing.T) {
	o := options(t.TempDir(), "")
	c := dial(t, o)
	runOne(t, c, shell(key(1), "echo short"))
	out := openOutput(t, o.Dir, key(1), 0, 0)
	if err := out.Since(time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	chunk, err := out.Next(t.Context(), false)
	if err != nil || time.Since(chunk.At) > time.Hour {
		t.Errorf("%q was written at %v, %v", chunk.Data, chunk.At, err)
	}
	path := runtime.OutputPath(o.Dir, key(1), runtime.Stdout)
	before := time.Now().Add(-24 * time.Hour)
	if err := errors.Join(os.Remove(timesOf(o.Dir, 1)), os.Chtimes(path, before, before)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := openOutput(t, o.Dir, key(1), 0, 0).Since(time.Now()); !errors.Is(err, runtime.ErrNoTimes) {
		t.Errorf("output of an earlier release: %v", err)
	}
}
