package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Fork starts a command by the thread that forks all children. With the file of
// a network namespace the child begins in that one.
func Fork(cmd *exec.Cmd, netns string) error {
	result := make(chan error)
	forker() <- func() { result <- visit(netns, cmd.Start) }
	return <-result
}

// forker is the thread that forks all children.
var forker = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// visit calls f with this thread in the network namespace.
func visit(netns string, f func() error) error {
	if netns == "" {
		return f()
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	there, err := os.Open(netns)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", netns, err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("the thread that forks is lost in %s: %v", netns, err))
		}
	}()
	return f()
}
