package initcall

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostile listens as a first process that commands have taken over, and says what it likes.
func hostile(t *testing.T, say func(*net.UnixConn)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			say(conn)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return dir
}

func startHere(t *testing.T, dir string) (*Process, error) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	return Start(t.Context(), dir, Command{Argv: []string{"true"}}, Files{Std: [3]int{fd, fd, fd}, V2: -1})
}

// descriptors counts those of this process that lead to a file.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == path {
			n++
		}
	}
	return n
}

func TestAHostileFirstProcessIsNotBelieved(t *testing.T) {
	gift := filepath.Join(t.TempDir(), "gift")
	f, err := os.Create(gift)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fds := []int{int(f.Fd()), int(f.Fd()), int(f.Fd())}
	long := func(conn *net.UnixConn, size uint32) {
		_, _ = conn.Write(binary.BigEndian.AppendUint32(nil, size))
		_, _ = conn.Write([]byte("{}"))
	}
	for name, say := range map[string]func(*net.UnixConn){
		"descriptors": func(conn *net.UnixConn) { _ = send(conn, Started{}, fds...) },
		"a size":      func(conn *net.UnixConn) { long(conn, 1<<32-1) },
		"a long text": func(conn *net.UnixConn) { long(conn, answerBytesMax+1) },
		"no message":  func(conn *net.UnixConn) { _ = conn.Close() },
		"no JSON":     func(conn *net.UnixConn) { long(conn, 1) },
	} {
		p, err := startHere(t, hostile(t, say))
		if !errors.Is(err, ErrGone) || p != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, say := range map[string]any{
		"time that runs back":        Ended{User: -1},
		"less than no memory":        Ended{MaxRSSKiB: -1},
		"a process that was stopped": Ended{Status: syscall.WaitStatus(0x137f)},
		"text":                       "ended",
	} {
		p, err := startHere(t, hostile(t, func(conn *net.UnixConn) { _ = send(conn, Started{}); _ = send(conn, say, fds...) }))
		if err != nil {
			t.Fatal(err)
		}
		if e, err := p.Wait(); !errors.Is(err, ErrGone) || e != (Ended{}) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if n := descriptors(t, gift); n != 1 {
		t.Errorf("the file of the first process is open %d times", n)
	}
}

// The supervisor serves one request at a time, and a signal is one.
func TestSignalsThatNobodyReadsEnd(t *testing.T) {
	p, err := startHere(t, hostile(t, func(conn *net.UnixConn) { _ = send(conn, Started{}) }))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for err == nil && time.Since(began) < time.Minute {
		err = p.Signal(syscall.SIGUSR1)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("signals that nobody reads: %v", err)
	}
}

func TestReasonsAreShort(t *testing.T) {
	why := strings.Repeat("é", 1<<20)
	dir := hostile(t, func(conn *net.UnixConn) { _ = (&Call{conn: conn}).Started(why) })
	if _, err := startHere(t, dir); err == nil || len(err.Error()) > sentenceMax+3 || !errors.As(err, new(StartError)) {
		t.Errorf("a long reason: %d bytes", len(err.Error()))
	}
}

// A process that has too many files open cannot look at a sandbox, and must not say that it has ended.
func TestOnlyASandboxThatHasEndedIsGone(t *testing.T) {
	dir := hostile(t, func(conn *net.UnixConn) { _ = conn.Close() })
	empty := t.TempDir()
	closed := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(closed, SocketName), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		gone bool
	}{"it listens": {dir, false}, "no socket": {empty, true}, "no folder": {filepath.Join(empty, "x"), true}, "nothing accepts": {closed, true}} {
		if got := Gone(c.dir); got != c.gone {
			t.Errorf("%s: gone is %t", name, got)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(dir)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, unix.EMFILE) || errors.Is(err, ErrGone) || conn != nil {
		t.Errorf("without a free descriptor: %v", err)
	}
}
