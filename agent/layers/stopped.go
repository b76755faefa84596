package layers

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// stopped starts a command that the kernel stops before its first instruction, opens its user
// namespace, and ends it. It does so on a thread of its own: only the thread that traces a process may
// wait for it.
func stopped(cmd *exec.Cmd) (users *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err = cmd.Start(); err != nil {
			return
		}
		users, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	<-done
	return users, err
}
