package runtime_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// feed writes all of it from an offset on, as a client does.
func feed(t testing.TB, to runtime.Streams, k plan.Key, writer string, offset uint64, data []byte, eof bool) uint64 {
	t.Helper()
	end := offset + uint64(len(data))
	limit := time.Now().Add(2 * time.Minute)
	for {
		n := min(len(data), runtime.InputBytesMax)
		state, err := to.WriteInput(t.Context(), k, runtime.Input{
			Writer: writer, Offset: &offset, Data: data[:n], EOF: eof && n == len(data), Wait: time.Second,
		})
		switch {
		case errors.Is(err, runtime.ErrNotRunning) && time.Now().Before(limit): // it has not started yet
			time.Sleep(2 * time.Millisecond)
			continue
		case err != nil:
			t.Fatal(err)
		}
		data, offset = data[state.Offset-offset:], state.Offset
		if offset == end && (!eof || state.Closed) {
			return offset
		}
		if time.Now().After(limit) {
			t.Fatalf("%d bytes were not read", end-offset)
		}
	}
}

func withInput(n uint64, script string) runtime.Spec {
	s := shell(key(n), script)
	s.Stdin = true
	return s
}

func onTerminal(n uint64, script string) runtime.Spec {
	s := shell(key(n), script)
	s.TTY = &runtime.Terminal{Rows: 24, Columns: 80}
	return s
}

// signaled sends a signal to an attempt that is about to run.
func signaled(t testing.TB, to runtime.Streams, k plan.Key, sig runtime.Signal) {
	t.Helper()
	waitFor(t, "the attempt", func() bool {
		err := to.Signal(t.Context(), k, sig)
		if err != nil && !errors.Is(err, runtime.ErrNotRunning) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// reached waits until an attempt can be reached, which is soon after its command has started.
func reached(t testing.TB, to runtime.Streams, k plan.Key) {
	t.Helper()
	waitFor(t, "the attempt", func() bool {
		_, err := to.WriteInput(t.Context(), k, runtime.Input{})
		return !errors.Is(err, runtime.ErrNotRunning)
	})
}

// written waits until the output of an attempt has a text, and returns the last 1 MiB of it.
func written(t testing.TB, o runtime.Options, k plan.Key, text string) string {
	t.Helper()
	var all []byte
	waitFor(t, fmt.Sprintf("%q", text), func() bool {
		all = newest(runtime.OutputPath(o.Dir, k, runtime.Stdout))
		return bytes.Contains(all, []byte(text))
	})
	return string(all)
}

// newest is the end of a file as it is now. One that grows fast has no end for who reads on and on.
func newest(path string) []byte {
	const most = 1 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b := make([]byte, min(info.Size(), most))
	n, _ := f.ReadAt(b, info.Size()-int64(len(b)))
	return b[:n]
}

func TestInputIsWhatWasWritten(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		c := dial(t, o)
		data := make([]byte, 3<<20+17)
		rand.NewChaCha8([32]byte{1}).Read(data)
		start(t, c, withInput(1, "cat"))
		feed(t, c, key(1), "", 0, data, true)
		if e := nextExit(t, c); e.Reason != plan.ReasonExited || e.ExitCode != 0 {
			t.Fatalf("ended with %+v", e)
		}
		out := openOutput(t, o.Dir, key(1), 0, 0)
		got, _ := readAll(t, out, true)
		if sha256.Sum256([]byte(got[0])) != sha256.Sum256(data) {
			t.Errorf("%d bytes came out of %d, or others", len(got[0]), len(data))
		}
		if e := runOne(t, c, shell(key(2), "cat; echo end")); string(e.Stdout) != "end\n" {
			t.Errorf("without input it read %q", e.Stdout)
		}
	})
}

// Programs and pipes end without a newline, too.
func TestATerminalEndsAfterAPartOfALine(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	for i, text := range []string{"part", "line\n", ""} {
		n := uint64(i) + 1
		spec := onTerminal(n, "stty -echo; echo up; exec cat")
		spec.Timeout = time.Minute
		start(t, c, spec)
		written(t, o, key(n), "up")
		feed(t, c, key(n), "", 0, []byte(text), true)
		if e := nextExit(t, c); e.Reason != plan.ReasonExited || !strings.HasPrefix(string(e.Stdout), "up\r\n"+strings.TrimSuffix(text, "\n")) {
			t.Errorf("after %q it ended with %+v", text, e)
		}
	}
}

func TestRepeatedInputIsWrittenOnce(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	start(t, c, withInput(1, "exec cat"))
	feed(t, c, key(1), "a", 0, []byte("one "), false)
	write := func(writer string, offset uint64, text string) (uint64, error) {
		state, err := c.WriteInput(t.Context(), key(1), runtime.Input{Writer: writer, Offset: &offset, Data: []byte(text), Wait: time.Second})
		return state.Offset, err
	}
	for _, step := range []struct {
		writer string
		offset uint64
		text   string
		want   uint64
		err    error
	}{
		{"a", 0, "one ", 4, nil},
		{"a", 0, "one two ", 8, nil}, // half of it is new
		{"a", 2, "e tw", 8, nil},
		{"a", 9, "gap", 0, runtime.ErrInputGap},
		{"b", 0, "three ", 6, nil}, // another writer has its own offset
		{"b", 8, "gap", 0, runtime.ErrInputGap},
		{"c", 0, "", 0, nil},
		{"a", 8, "four", 12, nil},
		{"a", 1 << 63, "gap", 0, runtime.ErrInputGap},
	} {
		got, err := write(step.writer, step.offset, step.text)
		if !errors.Is(err, step.err) || got != step.want {
			t.Errorf("%+v: %d, %v", step, got, err)
		}
	}
	if state, err := c.WriteInput(t.Context(), key(1), runtime.Input{Data: []byte("!"), EOF: true}); err != nil || !state.Closed || state.Offset != 1 {
		t.Errorf("without an offset: %+v, %v", state, err)
	}
	if state, err := c.WriteInput(t.Context(), key(1), runtime.Input{Writer: "a", Offset: new(uint64), Data: []byte("one "), EOF: true}); err == nil && !state.Closed {
		t.Errorf("the end repeated: %+v, %v", state, err)
	}
	if e := nextExit(t, c); string(e.Stdout) != "one two three four!" {
		t.Errorf("it read %q", e.Stdout)
	}
	if _, err := write("a", 12, "late"); !errors.Is(err, runtime.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

func TestInputThatNothingReadsIsBounded(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	start(t, c, withInput(1, "exec sleep 1000"))
	var offset uint64
	data := make([]byte, runtime.InputBytesMax)
	feed(t, c, key(1), "", 0, []byte("x"), false)
	for offset = 1; ; {
		state, err := c.WriteInput(t.Context(), key(1), runtime.Input{Offset: &offset, Data: data, Wait: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if state.Offset == offset {
			break
		}
		if offset = state.Offset; offset > 4<<20 {
			t.Fatalf("%d bytes were taken that nothing reads", offset)
		}
	}
	for _, in := range []runtime.Input{
		{Data: make([]byte, runtime.InputBytesMax+1)},
		{Writer: strings.Repeat("w", runtime.WriterBytesMax+1)},
		{Wait: -1},
	} {
		if _, err := c.WriteInput(t.Context(), key(1), in); !errors.Is(err, runtime.ErrInvalidSpec) {
			t.Errorf("%d bytes of %q: %v", len(in.Data), in.Writer, err)
		}
	}
	// Calls that wait for room do not keep others from being served, nor the attempt from ending.
	waits := make(chan error)
	for range 12 {
		go func() {
			_, err := c.WriteInput(context.Background(), key(1), runtime.Input{Data: data, Wait: runtime.InputWaitMax})
			waits <- err
		}()
	}
	refused := 0
	for range 4 { // 8 may wait
		if err := <-waits; errors.Is(err, runtime.ErrInputBusy) {
			refused++
		}
	}
	if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
		t.Fatal(err)
	}
	if e := nextExit(t, c); e.Reason != plan.ReasonCanceled {
		t.Errorf("ended with %+v", e)
	}
	for range 8 {
		<-waits
	}
	if refused == 0 {
		t.Error("no call was refused")
	}
}

func TestACommandMayCloseItsInput(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	start(t, c, withInput(1, "exec <&-; echo closed; exec sleep 1000"))
	written(t, o, key(1), "closed")
	reached(t, c, key(1))
	if _, err := c.WriteInput(t.Context(), key(1), runtime.Input{Data: []byte("x"), Wait: time.Second}); !errors.Is(err, runtime.ErrInputClosed) {
		t.Errorf("input that nothing can read: %v", err)
	}
	start(t, c, shell(key(2), "echo up; exec sleep 1000"))
	reached(t, c, key(2))
	if _, err := c.WriteInput(t.Context(), key(2), runtime.Input{Data: []byte("x")}); !errors.Is(err, runtime.ErrNoInput) {
		t.Errorf("an attempt without input: %v", err)
	}
	if err := c.ResizeTerminal(t.Context(), key(2), runtime.Terminal{Rows: 1, Columns: 1}); !errors.Is(err, runtime.ErrNoInput) {
		t.Errorf("an attempt without a terminal: %v", err)
	}
	if err := c.Signal(t.Context(), key(2), runtime.Signal{Number: int(syscall.SIGSEGV)}); !errors.Is(err, runtime.ErrInvalidSpec) {
		t.Errorf("a signal that may not be sent: %v", err)
	}
	if err := c.Signal(t.Context(), key(3), runtime.Signal{Number: int(syscall.SIGINT)}); !errors.Is(err, runtime.ErrNotRunning) {
		t.Errorf("an attempt that is not there: %v", err)
	}
}

func TestInputOutlivesTheAgent(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	start(t, c, withInput(1, "exec cat"))
	at := feed(t, c, key(1), "w", 0, []byte("before "), false)
	next := dial(t, o)
	feed(t, next, key(1), "w", 0, []byte("before after"), true)
	if e := nextExit(t, next); string(e.Stdout) != "before after" || at != 7 {
		t.Errorf("it read %q", e.Stdout)
	}
	if _, err := c.WriteInput(t.Context(), key(1), runtime.Input{Data: []byte("x")}); !errors.Is(err, runtime.ErrLost) {
		t.Errorf("the agent before: %v", err)
	}
}

func TestSignalsReachTheGroupOrAll(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		c := dial(t, o)
		sleep := shell(key(1), "")
		sleep.Argv = []string{"sleep", "1000"} // a shell may miss a signal just before it executes this
		start(t, c, sleep)
		signaled(t, c, key(1), runtime.Signal{Number: int(syscall.SIGINT)})
		if e := nextExit(t, c); e.Signal != int(syscall.SIGINT) {
			t.Errorf("ended with %+v", e)
		}
		// One that has a session of its own is reached by all, and by nothing less.
		start(t, c, shell(key(2), `trap 'echo group' USR1
			setsid sh -c 'trap "echo other" USR1; echo up; while :; do sleep 0.01; done' &
			while :; do sleep 0.01; done`))
		written(t, o, key(2), "up")
		signal := runtime.Signal{Number: int(syscall.SIGUSR1), Request: "once"}
		for range 3 {
			signaled(t, c, key(2), signal)
		}
		if got := written(t, o, key(2), "group"); strings.Contains(got, "other") {
			t.Errorf("a signal to the group reached another: %q", got)
		}
		signal.All, signal.Request = true, "twice"
		if err := c.Signal(t.Context(), key(2), signal); err != nil {
			t.Fatal(err)
		}
		written(t, o, key(2), "other")
		waitFor(t, "the second signal", func() bool { return strings.Count(written(t, o, key(2), "group"), "group") == 2 })
		if err := c.Signal(t.Context(), key(2), runtime.Signal{Number: int(syscall.SIGKILL), All: true}); err != nil {
			t.Fatal(err)
		}
		if e := nextExit(t, c); e.Signal != int(syscall.SIGKILL) || e.Reason != plan.ReasonSignaled {
			t.Errorf("ended with %+v", e)
		}
	})
}

func TestATerminalIsOne(t *testing.T) {
	for _, isolate := range []bool{false, true} {
		t.Run(fmt.Sprint("isolated=", isolate), func(t *testing.T) {
			o := options(t.TempDir(), runtime.ModeAffinity)
			if isolate {
				o = isolated(t, runtime.ModeAffinity)
			}
			c := dial(t, o)
			start(t, c, onTerminal(1, `test -t 0 && test -t 1 && test -t 2 && echo terminal; tty; stty size; echo error >&2; echo line >/dev/tty
				while read line; do echo "got $line"; stty size; done; echo end`))
			written(t, o, key(1), "24 80\r\n")
			written(t, o, key(1), "line\r\n")
			reached(t, c, key(1))
			if err := c.ResizeTerminal(t.Context(), key(1), runtime.Terminal{Rows: 50, Columns: 132}); err != nil {
				t.Fatal(err)
			}
			feed(t, c, key(1), "", 0, []byte("hello\n"), false)
			written(t, o, key(1), "got hello\r\n")
			written(t, o, key(1), "50 132\r\n")
			for _, size := range []runtime.Terminal{{}, {Rows: 1}, {Rows: 4097, Columns: 1}} {
				if err := c.ResizeTerminal(t.Context(), key(1), size); !errors.Is(err, runtime.ErrInvalidSpec) {
					t.Errorf("a terminal of %+v: %v", size, err)
				}
			}
			feed(t, c, key(1), "", 6, nil, true)
			e := nextExit(t, c)
			all := written(t, o, key(1), "end\r\n")
			if e.ExitCode != 0 || !strings.Contains(all, "terminal\r\n") || !strings.Contains(all, "error\r\n") || len(e.Stderr) > 0 {
				t.Errorf("%+v wrote %q", e, all)
			}
		})
	}
}

func TestATerminalIsInterruptedInItsForeground(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	// The shell has job control, so that what it runs has a group of its own.
	start(t, c, onTerminal(1, `set -m; trap 'echo shell' INT; sh -c 'trap "echo job; exit 0" INT; echo up; while :; do sleep 0.01; done'; echo after`))
	written(t, o, key(1), "up")
	signaled(t, c, key(1), runtime.Signal{Number: int(syscall.SIGINT)})
	nextExit(t, c)
	if got := written(t, o, key(1), "after"); !strings.Contains(got, "job") || strings.Contains(got, "shell") {
		t.Errorf("it wrote %q", got)
	}
}

// All that was written to a terminal before its end is read, and a command that writes without
// end is killed all the same.
func TestOutputOfATerminalIsWhole(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	start(t, c, onTerminal(1, "stty -onlcr; seq 1 200000"))
	if e := nextExit(t, c); e.ExitCode != 0 {
		t.Fatalf("ended with %+v", e)
	}
	got, _ := readAll(t, openOutput(t, o.Dir, key(1), 0, 0), true)
	var want strings.Builder
	for i := range 200000 {
		fmt.Fprintln(&want, i+1)
	}
	if got[0] != want.String() {
		t.Errorf("%d bytes of %d", len(got[0]), want.Len())
	}
	start(t, c, onTerminal(2, "yes"))
	written(t, o, key(2), "y\r\n")
	if err := c.Kill(t.Context(), key(2), plan.ReasonCanceled); err != nil {
		t.Fatal(err)
	}
	if e := nextExit(t, c); e.Reason != plan.ReasonCanceled {
		t.Errorf("ended with %+v", e)
	}
}
