package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/cmd/internal/rotatest"
	"rota/internal/need"
)

// typist is a user at a terminal, in which a rota runs.
type typist struct {
	*world
	terminal *os.File
	cmd      *exec.Cmd
	ended    chan struct{}

	mu   sync.Mutex
	seen bytes.Buffer
}

// types starts a rota in a terminal.
func (w *world) types(args ...string) *typist {
	w.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		w.Fatal(err)
	}
	t := &typist{world: w, terminal: os.NewFile(uintptr(fd), "terminal"), ended: make(chan struct{})}
	w.Cleanup(func() { t.terminal.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		w.Fatal(err)
	}
	t.resize(30, 90)
	near, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		w.Fatal(err)
	}
	defer near.Close()
	t.cmd = exec.Command(rotatest.Binary(w.T), append([]string{"--addr", strings.Join(w.cluster.Addrs(), ",")}, args...)...)
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = near, near, near
	// Of one of this kind, no library asks for its colors, and takes what is typed for an answer.
	t.cmd.Env = append(os.Environ(), "TERM=screen")
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := t.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = t.cmd.Process.Kill(); <-t.ended })
	go func() { _ = t.cmd.Wait(); close(t.ended) }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := t.terminal.Read(buf)
			t.mu.Lock()
			t.seen.Write(buf[:n])
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t
}

func (t *typist) resize(rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(t.terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

// sees waits for something on the screen, and returns what the parentheses in it stand for.
func (t *typist) sees(pattern string) (found []string) {
	t.Helper()
	expected := regexp.MustCompile(pattern)
	defer func() {
		if found == nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.Logf("it shows %q", t.seen.String())
		}
	}()
	t.until(fmt.Sprintf("the screen shows %q", pattern), func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		found = expected.FindStringSubmatch(t.seen.String())
		return found != nil
	})
	return found
}

func (t *typist) keys(keys string) {
	t.Helper()
	if _, err := t.terminal.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// exits waits for the end of the rota, and returns its exit code.
func (t *typist) exits() int {
	<-t.ended
	return t.cmd.ProcessState.ExitCode()
}

// TestTyping runs a shell through the command line: keys, Ctrl-C, another size, detaching, and
// attaching twice.
func TestTyping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	opened, err := w.api.Trajectories.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{MemoryBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	home := fmt.Sprint(opened.Trajectory.Id)
	first := w.types("exec", "-i", "-t", "-e", "PS1=ready> ", home, "--", "sh")
	first.sees("ready> ")
	first.keys("stty size; pwd >where; echo $((6*7))\r")
	first.sees(`30 90\r\n42\r\n`)
	first.resize(40, 100)
	// The new size arrives when it does.
	first.keys("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.05; done; echo re''sized\r")
	first.sees("resized")
	// Ctrl-C goes to a child that says when it is prepared for it.
	first.keys("sh -c 'trap \"echo inter''rupted; exit 0\" INT; echo wai''ting; while :; do sleep 0.1; done'\r")
	first.sees("waiting")
	first.keys("\x03")
	first.sees("interrupted")
	first.sees("ready> $")
	first.keys("\x10\x11")
	id := first.sees(`detached: action (\d+) goes on`)[1]
	if code := first.exits(); code != 0 {
		t.Errorf("detaching exits with %d", code)
	}
	one, two := w.types("attach", "-i", "-t", id), w.types("attach", "-i", "-t", id)
	one.sees("ready> $")
	two.sees("ready> $")
	one.keys("echo o''ne\r")
	one.sees("one\r\n")
	two.sees("one\r\n")
	two.keys("echo t''wo; exit 7\r")
	one.sees("two\r\n")
	if a, b := one.exits(), two.exits(); a != 7 || b != 7 {
		t.Errorf("exit codes %d and %d", a, b)
	}
	out, _, _, code := w.rota(strings.Join(w.cluster.Addrs(), ","), "exec", home, "--", "cat", "where")
	if code != 0 || !strings.Contains(out, "trajector") {
		t.Errorf("exec: exit code %d, %q", code, out)
	}
}

// TestDetachingFromWhatDoesNotRead detaches from a command that reads nothing of what was pasted, and
// from one that has closed its terminal.
func TestDetachingFromWhatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	for _, script := range []string{"stty raw -echo; echo up; exec sleep 1000", "echo up; exec sleep 1000 <&- >&- 2>&-"} {
		run := w.types("run", "-i", "-t", "--", "sh", "-c", script)
		run.sees("up")
		run.keys(strings.Repeat("x", 200<<10))
		run.keys("\x10\x11")
		run.sees("detached")
		if code := run.exits(); code != 0 {
			t.Errorf("detaching exits with %d", code)
		}
	}
}

// TestSignalsAreForwarded interrupts a command through the command line.
func TestSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	run := w.types("run", "-i", "--", "sh", "-c", `trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done`)
	run.sees("up")
	run.keys("\x03") // the terminal is not raw: it sends SIGINT
	run.sees("caught")
	if code := run.exits(); code != 9 {
		t.Errorf("exit code %d", code)
	}
	sleep := w.types("run", "-i", "--", "sh", "-c", "echo up; exec sleep 1000")
	sleep.sees("up")
	if err := sleep.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := sleep.exits(); code != 128+15 {
		t.Errorf("exit code %d", code)
	}
}

// TestPythonStreams runs the tests of streams of the Python client against a cluster.
func TestPythonStreams(t *testing.T) {
	t.Parallel()
	need.Tool(t, "python3")
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	if out, err := pythonTests(ctx, "test_streams.py", w.cluster.Addrs()...).CombinedOutput(); err != nil || strings.Contains(string(out), "skipped") {
		t.Errorf("%v\n%s", err, out)
	}
}
