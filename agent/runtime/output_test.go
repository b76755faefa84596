package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

func openOutput(t *testing.T, dir string, k plan.Key, stdout, stderr int64) *runtime.Output {
	t.Helper()
	out, err := runtime.OpenOutput(dir, k, stdout, stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

// readAll reads to the end and returns both streams, and where each began.
func readAll(t *testing.T, out *runtime.Output, follow bool) (text, first [2]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		c, err := out.Next(ctx, follow)
		if err == io.EOF {
			return text, first
		}
		if err != nil {
			t.Fatal(err)
		}
		i := c.Stream - runtime.Stdout
		if first[i] == "" {
			first[i] = fmt.Sprint(c.Offset)
		}
		text[i] += string(c.Data)
	}
}

func TestOutputIsFollowedWhileItIsWritten(t *testing.T) {
	o := options(t.TempDir(), "")
	c := dial(t, o)
	fifo := filepath.Join(o.Dir, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, c, shell(key(1), "echo one; cat "+fifo+" >/dev/null; echo two; echo three >&2"))
	waitFor(t, "the first line", func() bool {
		b, _ := os.ReadFile(runtime.OutputPath(o.Dir, key(1), runtime.Stdout))
		return len(b) > 0
	})
	text, _ := readAll(t, openOutput(t, o.Dir, key(1), 0, 0), false)
	if text != [2]string{"one\n", ""} {
		t.Errorf("what is there: %q", text)
	}
	type both struct{ text, first [2]string }
	followed := make(chan both)
	out := openOutput(t, o.Dir, key(1), 2, 0)
	go func() {
		text, first := readAll(t, out, true)
		followed <- both{text, first}
	}()
	if err := os.WriteFile(fifo, nil, 0); err != nil {
		t.Fatal(err)
	}
	got := <-followed
	if got.text != [2]string{"e\ntwo\n", "three\n"} || got.first != [2]string{"2", "0"} {
		t.Errorf("followed: %q", got)
	}
	nextExit(t, c)
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	o := options(t.TempDir(), "")
	c := dial(t, o)
	start(t, c, shell(key(1), "sleep 1000"))
	var out *runtime.Output
	waitFor(t, "the output to exist", func() (ok bool) {
		var err error
		out, err = runtime.OpenOutput(o.Dir, key(1), 0, 0)
		return err == nil
	})
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := out.Next(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	o := options(t.TempDir(), "")
	o.OutputBytesMax = 1 << 20
	c := dial(t, o)
	e := runOne(t, c, self(t, key(1), "helper-write", "50000")) // 5 MB
	if want := []byte(fmt.Sprintf("%099d\n", 49999)); len(e.Stdout) != 4096 || !bytes.HasSuffix(e.Stdout, want) {
		t.Errorf("tail of %d bytes ends %q", len(e.Stdout), e.Stdout[max(0, len(e.Stdout)-120):])
	}
	var st syscall.Stat_t
	if err := syscall.Stat(runtime.OutputPath(o.Dir, key(1), runtime.Stdout), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != 5_000_000 || st.Blocks*512 > 1<<20 {
		t.Errorf("size %d, on disk %d", st.Size, st.Blocks*512)
	}
	text, first := readAll(t, openOutput(t, o.Dir, key(1), 0, 0), true)
	if n := len(text[0]); n > 1<<20 || n < 1<<20-1<<17 {
		t.Errorf("%d bytes can be read", n)
	}
	if want := fmt.Sprint(5_000_000 - len(text[0])); first[0] != want {
		t.Errorf("the first is at %s, want %s", first[0], want)
	}
	if strings.ContainsRune(text[0], 0) {
		t.Error("what was dropped was read as zeros")
	}
}

func TestTailsShareTheirSpace(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	long := func(c string, n int) string { return fmt.Sprintf("head -c %d /dev/zero | tr '\\0' %s", n, c) }
	for i, tt := range []struct{ out, err, wantOut, wantErr int }{
		{0, 0, 0, 0},
		{100, 100, 100, 100},
		{9000, 0, 4096, 0},
		{9000, 96, 4000, 96},
		{96, 9000, 96, 4000},
		{9000, 9000, 2048, 2048},
	} {
		e := runOne(t, c, shell(key(uint64(i+1)), long("o", tt.out)+";"+long("e", tt.err)+" >&2"))
		if len(e.Stdout) != tt.wantOut || len(e.Stderr) != tt.wantErr {
			t.Errorf("of %d and %d: %d and %d", tt.out, tt.err, len(e.Stdout), len(e.Stderr))
		}
		if strings.Trim(string(e.Stdout), "o") != "" || strings.Trim(string(e.Stderr), "e") != "" {
			t.Errorf("streams are mixed up: %q %q", e.Stdout, e.Stderr)
		}
	}
}

// A reader whose output is dropped sees no other attempt's.
func TestAReaderSeesItsOwnAttemptOnly(t *testing.T) {
	o := options(t.TempDir(), "")
	o.OutputKeepCount = 1
	c := dial(t, o)
	runOne(t, c, shell(key(1), "echo secret of one"))
	runOne(t, c, shell(key(2), "true"))
	empty := openOutput(t, o.Dir, key(2), 0, 0)
	for n := uint64(3); n < 40; n++ {
		old, err := runtime.OpenOutput(o.Dir, key(n-1), 0, 0)
		runOne(t, c, shell(key(n), "echo output of "+key(n).String()))
		if err != nil {
			continue // dropped already
		}
		text, _ := readAll(t, old, true)
		if own := "output of " + key(n-1).String() + "\n"; text[0] != "" && text[0] != own {
			t.Errorf("a reader of %d got %q", n-1, text[0])
		}
		old.Close()
	}
	if text, _ := readAll(t, empty, true); text != [2]string{} {
		t.Errorf("a reader of an empty output got %q", text)
	}
}

func TestOldOutputIsDropped(t *testing.T) {
	o := options(t.TempDir(), "")
	o.OutputKeepCount = 3
	c := dial(t, o)
	for n := uint64(1); n <= 5; n++ {
		runOne(t, c, shell(key(n), "echo "+key(n).String()))
	}
	gone := func(n uint64) bool {
		out, err := runtime.OpenOutput(o.Dir, key(n), 0, 0)
		if err == nil {
			out.Close()
		}
		return errors.Is(err, runtime.ErrNoOutput)
	}
	waitFor(t, "the oldest to be dropped", func() bool { return gone(1) && gone(2) })
	for n := uint64(3); n <= 5; n++ {
		if text, _ := readAll(t, openOutput(t, o.Dir, key(n), 0, 0), true); text[0] != key(n).String()+"\n" {
			t.Errorf("output of %d: %q", n, text)
		}
	}
	if !gone(99) {
		t.Error("output of an attempt that never was")
	}
}
