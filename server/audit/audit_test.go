package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

type line struct {
	N       int    `json:"n"`
	Padding string `json:"padding,omitempty"`
}

func open(t *testing.T, o Options) *Log {
	t.Helper()
	o.Logger = hclog.NewNullLogger()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// read returns the numbers in files, one after the other.
func read(t *testing.T, paths ...string) (numbers []int) {
	t.Helper()
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
			var one line
			if err := json.Unmarshal(s.Bytes(), &one); err != nil {
				t.Fatalf("%s: %q: %v", path, s.Text(), err)
			}
			numbers = append(numbers, one.N)
		}
	}
	return numbers
}

// TestEveryLineIsThere: whoever wrote at the same time, no line is lost or torn, and the file is
// private.
func TestEveryLineIsThere(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{Path: path})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 1000 {
				l.Write(line{N: i*1000 + n})
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Write(line{N: -1}) // after Close: nothing
	seen := map[int]bool{}
	for _, n := range read(t, path) {
		seen[n] = true
	}
	if len(seen) != 8000 || seen[-1] {
		t.Errorf("there are %d lines", len(seen))
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	again := open(t, Options{Path: path})
	again.Write(line{N: 8000})
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(read(t, path)); n != 8001 {
		t.Errorf("a log that is opened again has %d lines", n)
	}
}

// TestFilesAreRenamedBySize: the newest file is at the path, and only so many are kept.
func TestFilesAreRenamedBySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{Path: path, BytesMax: 100, Files: 3})
	for n := range 50 {
		l.Write(line{N: n, Padding: "0123456789012345678901234567890123456789"})
		if err := l.Reopen(); err != nil { // so that no two lines are written at once
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != 4 {
		t.Errorf("there are %v, %v", names, err)
	}
	kept := read(t, path+".3", path+".2", path+".1", path)
	for i, n := range kept {
		if want := 50 - len(kept) + i; n != want {
			t.Errorf("line %d is %d, want %d", i, n, want)
		}
	}
}

// TestAMissingFilePushesNoOlderOneOut: after a rename without a new file, as when no file can be
// opened, the next rename is of the new file only.
func TestAMissingFilePushesNoOlderOneOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path+".1", []byte("{\"N\":7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{Path: path, BytesMax: 1, Files: 1})
	l.Write(line{N: 1})
	untilWritten(t, path)
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l.Write(line{N: 2})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if old, fresh := read(t, path+".1"), read(t, path); fmt.Sprint(old, fresh) != "[7] [2]" {
		t.Errorf("the old file has %v, the new one %v", old, fresh)
	}
}

// untilWritten waits until a file has a line: it may be opened again before that is written.
func untilWritten(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(read(t, path)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no line is written")
		}
	}
}

// TestAFileThatWasRenamedIsOpenedAgain: as logrotate does, with a signal.
func TestAFileThatWasRenamedIsOpenedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{Path: path})
	l.Write(line{N: 1})
	untilWritten(t, path)
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Write(line{N: 2})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if old, fresh := read(t, path+".old"), read(t, path); fmt.Sprint(old, fresh) != "[1] [2]" {
		t.Errorf("the old file has %v, the new one %v", old, fresh)
	}
	if err := l.Reopen(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a log that is closed is opened again: %v", err)
	}
}

// TestAWriterThatCannotWriteHoldsCallsBack: lines are not dropped. Those that fit wait, the next
// call waits too, and all are written when the file can be written again.
func TestAWriterThatCannotWriteHoldsCallsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Options{Path: path})
	_ = l.file.Close() // the writer has not begun to use it
	for n := range bufferLines {
		l.Write(line{N: n})
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for n := range bufferLines {
			l.Write(line{N: bufferLines + n})
		}
	}()
	_ = l.Reopen() // the error is that the old file is closed already
	<-written
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got := read(t, path)
	if len(got) != 2*bufferLines {
		t.Fatalf("there are %d lines, want %d", len(got), 2*bufferLines)
	}
	for i, n := range got {
		if i != n {
			t.Fatalf("line %d is %d", i, n)
		}
	}
}
