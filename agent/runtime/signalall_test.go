package runtime

import (
	"os/exec"
	"syscall"
	"testing"
)

// A process that is not found again is another one, with a number that was free.
func TestOnlyWhatIsFoundAgainIsSignaled(t *testing.T) {
	sleeper := func() *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	mine, others := sleeper(), sleeper()
	looks := 0
	signalAll(func() []int {
		if looks++; looks == 1 {
			return []int{mine.Process.Pid, others.Process.Pid, 1 << 30}
		}
		return []int{mine.Process.Pid, 1 << 30}
	}, syscall.SIGTERM)
	_ = mine.Wait()
	if s := mine.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("what was found ended with %v", s)
	}
	_ = others.Process.Kill()
	_ = others.Wait()
	if s := others.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGKILL {
		t.Errorf("what was not found again ended with %v", s)
	}
}
