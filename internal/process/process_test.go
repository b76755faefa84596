package process

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/need"
)

func shell(t *testing.T, script string) *Process {
	t.Helper()
	need.Tool(t, "sh")
	p := New("shell", "", t.TempDir(), "/bin/sh", "-c", script)
	t.Cleanup(p.Kill)
	return p
}

func TestProcessCanBeKilledAndStartedAgain(t *testing.T) {
	p := shell(t, "echo up; exec sleep 1000")
	for range 2 {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); !errors.Is(err, ErrRunning) {
			t.Fatalf("second start: %v, want ErrRunning", err)
		}
		p.Kill()
		if pid := p.Pid(); pid != 0 {
			t.Fatalf("still running as %d after Kill", pid)
		}
	}
}

func TestStopKillsWhatIgnoresIt(t *testing.T) {
	p := shell(t, `trap "" TERM; echo deaf; while :; do sleep 0.05; done`)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(logOf(t, p), "deaf") {
		time.Sleep(time.Millisecond)
	}
	p.Stop(50 * time.Millisecond)
	if p.Pid() != 0 {
		t.Error("it survived Stop")
	}
}

// The message about a process that ended early says why, in its own words.
func TestEndedShowsTheLog(t *testing.T) {
	p := shell(t, "echo port is taken >&2; exit 3")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Ended(); !strings.Contains(err.Error(), "port is taken") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("message %q", err)
	}
}

// Children of a parent that is killed go away with it.
func TestChildrenDieWithTheParent(t *testing.T) {
	if dir := os.Getenv("PROCESS_TEST_PARENT"); dir != "" {
		child := New("child", "", dir, "/bin/sleep", "1000")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/pid", []byte(strconv.Itoa(child.Pid())), 0o644); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PROCESS_TEST_PARENT", dir)
	parent := New("parent", "", dir, self, "-test.run", "^TestChildrenDieWithTheParent$")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for pid == 0 {
		raw, _ := os.ReadFile(dir + "/pid")
		pid, _ = strconv.Atoi(string(raw))
		time.Sleep(time.Millisecond)
	}
	parent.Kill()
	for deadline := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlived its parent")
		}
	}
}

func logOf(t *testing.T, p *Process) string {
	t.Helper()
	raw, err := os.ReadFile(p.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z")
}
