package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// binary is the rota that is tested, built once.
var binary string

// TestMain makes the test binary also the program that starts others in a
// namespace: "enter FILE PROGRAM ARGS...". "ip netns exec" would do, but it
// mounts a /sys of its own, in which the agent would find no cgroups.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "enter" {
		fmt.Fprintln(os.Stderr, enter(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	os.Exit(run(m))
}

// enter replaces this process; it returns only with an error.
func enter(file string, argv []string) error {
	runtime.LockOSThread()
	ns, err := os.Open(file)
	if err != nil {
		return err
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", file, err)
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", prefix())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "rota")
	build := exec.Command("go", "build", "-o", binary, "rota/cmd/rota")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build rota:", err)
		return 1
	}
	return m.Run()
}
