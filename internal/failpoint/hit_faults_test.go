//go:build faults

package failpoint

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the process that comes by a failpoint: twice, on two
// goroutines at the same time, and then says so.
func TestMain(m *testing.M) {
	if folder == "" {
		os.Exit(m.Run())
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { Hit(LogAppended) })
	}
	both.Wait()
	Hit(LogAppended)
	fmt.Println("passed")
}

// pass runs a process that comes by, and returns how it ended and what it said.
func pass(dir string) (*os.ProcessState, string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), Env+"="+dir)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState, string(out)
}

func arm(t *testing.T, dir, action string) {
	t.Helper()
	if err := Arm(dir, LogAppended, action); err != nil {
		t.Fatal(err)
	}
	if Acted(dir, LogAppended) {
		t.Fatal("armed again, and acted already")
	}
}

func TestAFailpointActsOnce(t *testing.T) {
	dir := t.TempDir()
	if state, out := pass(dir); !state.Success() || out != "passed\n" {
		t.Errorf("without anything armed: %v, %q", state, out)
	}

	arm(t, dir, "kill")
	state, out := pass(dir)
	if status := state.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL || strings.Contains(out, "passed") {
		t.Errorf("kill: %v, %q", state, out)
	}
	if !Acted(dir, LogAppended) {
		t.Error("killed, and it does not show")
	}
	if state, _ := pass(dir); !state.Success() {
		t.Errorf("acted twice: %v", state)
	}

	arm(t, dir, "exit")
	if state, out := pass(dir); state.ExitCode() != 1 || strings.Contains(out, "passed") {
		t.Errorf("exit: %v, %q", state, out)
	}

	arm(t, dir, "sleep 300ms")
	begin := time.Now()
	if state, out := pass(dir); !state.Success() || time.Since(begin) < 300*time.Millisecond || strings.Count(out, "sleep") != 1 {
		t.Errorf("sleep: %v after %v, %q", state, time.Since(begin), out)
	}
}

func TestAProcessThatStoppedItselfGoesOn(t *testing.T) {
	dir := t.TempDir()
	arm(t, dir, "stop")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), Env+"="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Errorf("%v, %v", status, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestAFailpointThatCannotBeReadIsNotPassed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/"+LogAppended, []byte("dance"), 0o600); err != nil {
		t.Fatal(err)
	}
	if state, out := pass(dir); state.Success() || !strings.Contains(out, "dance") {
		t.Errorf("%v, %q", state, out)
	}
}
