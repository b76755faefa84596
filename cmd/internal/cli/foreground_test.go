package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/internal/need"
)

// screen is a terminal in which a program runs.
type screen struct {
	*testing.T
	terminal *os.File
	cmd      *exec.Cmd
	ended    chan struct{}

	mu   sync.Mutex
	seen bytes.Buffer
}

// inTerminal starts bash in a terminal of its own. The script finds a rota that gets turns at once in $ROTA.
func inTerminal(t *testing.T, script string) *screen {
	t.Helper()
	need.Tool(t, "bash")
	s := &turnGiver{then: rotav1.TurnState_TURN_STATE_HELD, turn: &rotav1.Turn{
		Id: 7, Token: 5, Revision: 1, State: rotav1.TurnState_TURN_STATE_HELD,
	}}
	all := services{}
	all.add(rotav1connect.NewTurnServiceHandler(s, codec.ForHandler()))
	all.add(rotav1connect.NewOperatorServiceHandler(s, codec.ForHandler()))
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	w := &screen{T: t, terminal: os.NewFile(uintptr(fd), "terminal"), ended: make(chan struct{})}
	t.Cleanup(func() { w.terminal.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	near, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	w.cmd = exec.Command("bash", "--norc", "-c", script)
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = near, near, near
	w.cmd.Env = append(os.Environ(), commandVariable+"=1", "ROTA_ADDR="+serve(t, all), "ROTA_CONFIG=/dev/null", "TERM=dumb",
		"ROTA_TEST_BINARY="+binary)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); <-w.ended })
	go func() { _ = w.cmd.Wait(); close(w.ended) }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := w.terminal.Read(buf)
			w.mu.Lock()
			w.seen.Write(buf[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

// sees waits until the screen shows something.
func (w *screen) sees(pattern string) {
	w.Helper()
	if !w.shows(pattern, 30*time.Second) {
		w.Fatalf("the screen shows %q, and not %s", w.shown(), pattern)
	}
}

// shows reports whether the screen shows something before long.
func (w *screen) shows(pattern string, before time.Duration) bool {
	expected := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(before); !expected.MatchString(w.shown()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func (w *screen) shown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.String()
}

func (w *screen) types(keys string) {
	w.Helper()
	if _, err := w.terminal.WriteString(keys); err != nil {
		w.Fatal(err)
	}
}

// turn begins a command line of a turn.
const turn = `"$ROTA_TEST_BINARY" turn run --deployment a/b -- `

// TestTheCommandOfATurnReadsTheTerminal, and is not stopped for it.
func TestTheCommandOfATurnReadsTheTerminal(t *testing.T) {
	w := inTerminal(t, turn+`sh -c 'read line; echo "got $line"; exit 3'; echo "code $?"`)
	w.types("hello\n")
	w.sees("got hello")
	w.sees("code 3")
}

// TestCtrlZSuspendsATurn and the shell continues it.
func TestCtrlZSuspendsATurn(t *testing.T) {
	w := inTerminal(t, "set -m; "+turn+`sh -c 'echo up; read line; echo "got $line"'; echo suspended; fg; echo "code $?"`)
	w.sees("up")
	// A key at the very moment at which the command gets the terminal is lost, as the command is continued
	// then in case it had tried to read before.
	for tries := 0; ; tries++ {
		w.types("\x1a")
		if w.shows("suspended", 9*time.Second) {
			break
		}
		if tries == 2 {
			t.Fatalf("the screen shows %q", w.shown())
		}
	}
	w.types("hello\n")
	w.sees("got hello")
	w.sees("code 0")
}

// TestCtrlCReachesTheScriptOfATurn, though the terminal sends it to the command only.
func TestCtrlCReachesTheScriptOfATurn(t *testing.T) {
	w := inTerminal(t, `trap 'echo the script too' INT; `+turn+`sh -c 'echo up; exec sleep 1000'; echo "code $?"`)
	w.sees("up")
	w.types("\x03")
	w.sees("the script too")
	w.sees("code 130")
}
