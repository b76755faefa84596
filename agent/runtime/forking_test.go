package runtime_test

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/clock"
)

// hanging returns a program that nobody can open before the test ends, or for 45 s: somebody has a
// write lease of its file. tried gets a value when somebody tries.
func hanging(t *testing.T) (path string, tried <-chan os.Signal) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "hangs")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGIO)
	t.Cleanup(func() { signal.Stop(signals) })
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no lease of a file in %s: %v", filepath.Dir(path), err)
	}
	return path, signals
}

// TestAProgramThatHangsBeforeItIsExecuted, as on a disk that hangs: the supervisor answers, starts others, tells
// of ends and ends leases meanwhile, also if garbage should be collected.
func TestAProgramThatHangsBeforeItIsExecuted(t *testing.T) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV1, runtime.ModeCgroupV2} {
		t.Run(mode, func(t *testing.T) { hangBeforeExec(t, mode, true) })
	}
}

// TestAProgramThatHangsWithoutTheLauncher: others are started after it, and all else goes on.
func TestAProgramThatHangsWithoutTheLauncher(t *testing.T) {
	for _, mode := range []string{runtime.ModeHybrid, runtime.ModeCgroupV1, runtime.ModeCgroupV2} {
		if !t.Run(mode, func(t *testing.T) { hangBeforeExec(t, mode, false) }) {
			return // each one that stands still takes 45 s
		}
	}
}

func hangBeforeExec(t *testing.T, mode string, launcher bool) {
	t.Setenv("GOGC", "1")
	path, tried := hanging(t)
	dir := t.TempDir()
	if !launcher {
		if err := os.WriteFile(filepath.Join(dir, noLauncher), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, options(dir, mode))
	goes := filepath.Join(t.TempDir(), "go")
	start(t, c, shell(key(1), "sleep 1000"))
	start(t, c, shell(key(2), "echo > "+goes+".begun; while [ ! -e "+goes+" ]; do sleep 0.01; done"))
	waitFor(t, "the second to be forked", func() bool { _, err := os.Stat(goes + ".begun"); return err == nil })
	start(t, c, runtime.Spec{Key: key(3), Argv: []string{path}, Env: []string{leftover + "=" + parentOf()}})
	select {
	case <-tried:
	case <-time.After(time.Minute):
		t.Fatal("nobody opens the program")
	}
	for range 2000 { // until garbage is to be collected
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, _, err := c.List(ctx)
		cancel()
		if err != nil {
			t.Fatalf("while a program hangs: %v", err)
		}
	}
	if launcher {
		if e := runOne(t, c, shell(key(5), "true")); e.Reason != plan.ReasonExited || e.ExitCode != 0 {
			t.Fatalf("another while it hangs: %+v", e)
		}
	}
	if err := os.WriteFile(goes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := nextExit(t, c); e.Key != key(2) || e.Reason != plan.ReasonExited {
		t.Fatalf("ended: %+v", e)
	}
	if err := c.SetDeadline(t.Context(), clock.Boottime()+int64(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if e := nextExit(t, c); e.Key != key(1) && e.Key != key(3) || e.Reason != plan.ReasonNodeLost {
			t.Errorf("ended with the lease: %+v", e)
		}
	}
	if err := c.SetDeadline(t.Context(), clock.Boottime()+int64(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if e := runOne(t, c, shell(key(4), "true")); e.Reason != plan.ReasonExited || e.ExitCode != 0 {
		t.Errorf("the next: %+v", e)
	}
}
