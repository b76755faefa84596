package cluster

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/process"
)

// helpers are the programs that the test binary can be instead, by name.
var helpers map[string]func() int

func init() {
	helpers = map[string]func() int{hearHelper: hear, sayHelper: say, exitHelper: exitIsolated, orphanHelper: leaveOrphan}
}

// Programs that isolate themselves.
const (
	exitHelper   = "exit"
	orphanHelper = "orphan"
	exitTold     = 7
)

func exitIsolated() int {
	if err := Isolate(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("run", run, "with", strings.Join(os.Args[1:], " "))
	return exitTold
}

// leaveOrphan starts a process that nobody waits for, and a temporary file, and
// waits for a signal.
func leaveOrphan() int {
	if err := Isolate(); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := exec.Command("sh", "-c", "setsid sleep "+os.Args[1]+" &").Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := os.CreateTemp("", "left"); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	time.Sleep(patience)
	return 0
}

// self is this test binary as another program.
func self(helper string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+helper)
	return cmd
}

func TestIsolatedProgramHasTheSameArgumentsAndExitCode(t *testing.T) {
	isolated(t)
	out, err := self(exitHelper, "two words", "end").Output()
	if code, ok := err.(*exec.ExitError); !ok || code.ExitCode() != exitTold {
		t.Errorf("it ended with %v, want exit status %d", err, exitTold)
	}
	if got := string(out); !strings.HasPrefix(got, "run "+run+"-") || !strings.HasSuffix(got, " with two words end\n") {
		t.Errorf("it says %q; this is run %s", got, run)
	}
}

func TestIsolatedProgramSeesOnlyItsOwn(t *testing.T) {
	isolated(t)
	if raw, err := os.ReadFile("/proc/1/cmdline"); err != nil || !bytes.Contains(raw, []byte(".test")) {
		t.Errorf("process 1 is %q, %v", raw, err)
	}
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) != 1 || interfaces[0].Flags&net.FlagUp == 0 {
		t.Errorf("interfaces %v, %v; want lo, up", interfaces, err)
	}
	if dir := os.TempDir(); filepath.Base(dir) != run {
		t.Errorf("temporary files are in %s, want a folder of run %s", dir, run)
	}
	if len(hierarchies()) == 0 {
		t.Error("no cgroups are mounted, which agents need")
	}
}

// However a run ends, nothing of it goes on.
func TestNothingOutlivesItsRun(t *testing.T) {
	isolated(t)
	for number, test := range []struct {
		signal syscall.Signal
		want   string
		tidy   bool // it cleans up behind itself
	}{
		{syscall.SIGTERM, "exit status 143", true},
		{syscall.SIGINT, "exit status 130", true},
		{syscall.SIGKILL, "signal: killed", false},
	} {
		t.Run(test.signal.String(), func(t *testing.T) {
			marker := fmt.Sprintf("%d.%d", 100000+os.Getpid(), number)
			sleeping := func() bool {
				return len(scan("cmdline", func(args []byte) bool { return bytes.Contains(args, []byte("\x00sleep\x00"+marker+"\x00")) })) > 0
			}
			p := process.New("orphan", "", t.TempDir(), "/proc/self/exe", marker)
			p.Env = []string{helperVariable + "=" + orphanHelper}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			w := &world{T: t}
			w.until("it has left an orphan", sleeping)
			w.until("it is ready", func() bool {
				raw, err := os.ReadFile(p.LogPath())
				return err == nil && bytes.Contains(raw, []byte("ready"))
			})
			dir := filepath.Join(os.TempDir(), run+"-"+strconv.Itoa(p.Pid()))
			if !exists(dir) {
				t.Errorf("no temporary folder %s", dir)
			}
			p.Signal(test.signal)
			if <-p.Done(); p.Err() == nil || p.Err().Error() != test.want {
				t.Errorf("it ended with %v, want %s", p.Err(), test.want)
			}
			w.until("the orphan is gone", func() bool { return !sleeping() })
			if exists(dir) == test.tidy {
				t.Errorf("the temporary folder exists: %v", exists(dir))
			}
		})
	}
}

func TestLeftoversOfRunsThatAreGoneAreRemoved(t *testing.T) {
	isolated(t)
	const pidMax = 1 << 22
	for name, want := range map[string]bool{
		runPrefix + strconv.Itoa(os.Getpid()):      false,
		runPrefix + "1-" + strconv.Itoa(pidMax+1):  false,
		runPrefix + strconv.Itoa(pidMax+1):         true,
		runPrefix + strconv.Itoa(pidMax+1) + "-12": true,
		runPrefix + "x": false,
	} {
		if got := isGone(name); got != want {
			t.Errorf("%s is gone: %v, want %v", name, got, want)
		}
	}
	name := fmt.Sprint(runPrefix, pidMax+os.Getpid(), "-", run[len(runPrefix):])
	var left []string
	for _, parent := range append(cgroupParents(), os.TempDir()) {
		dir := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Join(dir, "agent", "box-1"), 0o755); err != nil {
			t.Fatal(err)
		}
		left = append(left, dir)
	}
	if len(left) < 2 {
		t.Fatalf("no cgroups to try it on: %v", left)
	}
	removeLeftovers(func(other string) bool { return other == name })
	for _, dir := range left {
		if exists(dir) {
			t.Errorf("%s is still there", dir)
		}
	}
}
