//go:build amd64 || arm64

package runtime

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rota/internal/need"
)

// The first process of a cell ends by itself if its supervisor is dead before it has
// asked to be killed with it: then the pipe has no reader.
func TestTheFirstProcessOfACellEndsWithoutASupervisor(t *testing.T) {
	need.Root(t)
	program, err := initProgram()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(program)
	devNull, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer devNull.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader.Close()
	c := &cell{first: -1}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", program), []string{"rota-init"}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{devNull.Fd(), writer.Fd(), devNull.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Cloneflags: cellNamespaces, PidFD: &c.first},
	})
	if err != nil {
		t.Skipf("namespaces cannot be made here: %v", err)
	}
	defer unix.Close(c.first)
	if !c.dead(20_000) {
		c.kill()
		t.Error("it waits to be killed, and nothing will kill it")
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
}
