package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// counting is an attempt that writes how far it has counted, over and over.
func counting(t testing.TB, k plan.Key) (spec runtime.Spec, read func() int) {
	file := filepath.Join(t.TempDir(), "count")
	spec = shell(k, fmt.Sprintf("i=0; while :; do i=$((i+1)); echo $i > %s.new; mv %s.new %s; done", file, file, file))
	return spec, func() int {
		text, _ := os.ReadFile(file)
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
}

// counted is an attempt on one CPU that counts, and what it has counted to.
func counted(t *testing.T, mode string) (c *runtime.Client, count func() int) {
	t.Helper()
	c = dial(t, options(t.TempDir(), mode))
	spec, count := counting(t, key(1))
	spec.CPUs = []int{0}
	start(t, c, spec)
	waitFor(t, "it to run", func() bool { return count() > 0 })
	return c, count
}

// TestFreeze: what is frozen stands still until it goes on, whatever CPUs it is given meanwhile,
// does not end for a signal to all of it, and its run timeout stands still, too.
func TestFreeze(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c, count := counted(t, mode)
		if !c.Describe().Resizes {
			if err := c.Freeze(t.Context(), key(1), true); mode == runtime.ModeAffinity && err == nil {
				t.Error("what cannot be done is no error")
			}
			return
		}
		for _, cpus := range [][]int{{1}, {0, 1}, {0}} {
			freeze(t, c, key(1), true)
			at := count()
			if err := c.Resize(t.Context(), key(1), cpus); err != nil {
				t.Fatal(err)
			}
			if err := c.Signal(t.Context(), key(1), runtime.Signal{Number: int(syscall.SIGWINCH), All: true}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			if now := count(); now != at {
				t.Fatalf("it counted from %d to %d while it was frozen", at, now)
			}
			if running, _, err := c.List(t.Context()); err != nil || len(running) != 1 || !running[0].Frozen {
				t.Fatalf("the list says %v, %v", running, err)
			}
			freeze(t, c, key(1), false)
			waitFor(t, "it to go on", func() bool { return count() > at })
		}
	})
}

// TestAFrozenAttemptIsKilled, and tells why.
func TestAFrozenAttemptIsKilled(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c, _ := counted(t, mode)
		if !c.Describe().Resizes {
			t.Skip("nothing is frozen here")
		}
		freeze(t, c, key(1), true)
		if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		if exit := <-c.Exits(); exit.Key != key(1) || exit.Reason != plan.ReasonCanceled {
			t.Errorf("it ended as %+v", exit)
		}
	})
}

// TestTheRunTimeoutStandsStill while an attempt is frozen, and goes on with it.
func TestTheRunTimeoutStandsStill(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		spec, count := counting(t, key(1))
		spec.CPUs, spec.Timeout = []int{0}, 2*time.Second
		start(t, c, spec)
		if !c.Describe().Resizes {
			t.Skip("nothing is frozen here")
		}
		waitFor(t, "it to run", func() bool { return count() > 0 })
		freeze(t, c, key(1), true)
		select {
		case exit := <-c.Exits():
			t.Fatalf("it ended while it was frozen: %+v", exit)
		case <-time.After(2500 * time.Millisecond):
		}
		freeze(t, c, key(1), false)
		if exit := <-c.Exits(); exit.Reason != plan.ReasonTimeout || exit.Exec > spec.Timeout+10*time.Second {
			t.Errorf("it ended as %+v", exit)
		}
	})
}

// freeze freezes an attempt or lets it go on, once it has been forked.
func freeze(t testing.TB, c *runtime.Client, k plan.Key, frozen bool) {
	t.Helper()
	waitFor(t, "the freezer", func() bool { return c.Freeze(t.Context(), k, frozen) == nil })
}

// TestFreezeInASandbox: what runs in a container is frozen with all that it has started, and nothing
// else of the container is.
func TestFreezeInASandbox(t *testing.T) {
	forEachCgroupMode(t, func(t *testing.T, mode string) {
		n := newSandboxNode(t, mode)
		sb := n.open("")
		if !n.c.Describe().Resizes {
			t.Skip("nothing is frozen here")
		}
		const loop = "i=0; while :; do i=$((i+1)); echo $i >$ROTA_TRAJECTORY_DIR/%[1]s.new; busybox mv $ROTA_TRAJECTORY_DIR/%[1]s.new $ROTA_TRAJECTORY_DIR/%[1]s; done"
		spec := n.attempt(sb, 1, "busybox setsid sh -c '"+fmt.Sprintf(loop, "child")+"' & "+fmt.Sprintf(loop, "main"))
		spec.CPUs = []int{0}
		start(t, n.c, spec)
		count := func(name string) int {
			text, _ := os.ReadFile(filepath.Join(runtime.TrajectoryDir(n.o.Dir, 1), name))
			i, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			return i
		}
		waitFor(t, "both to run", func() bool { return count("main") > 0 && count("child") > 0 })
		freeze(t, n.c, key(1), true)
		main, child := count("main"), count("child")
		if e := runOne(t, n.c, n.attempt(sb, 2, "echo beside")); string(e.Stdout) != "beside\n" {
			t.Errorf("beside what is frozen: %+v", e)
		}
		time.Sleep(50 * time.Millisecond)
		if count("main") != main || count("child") != child {
			t.Fatal("it counted while it was frozen")
		}
		n.restart() // an agent that has not frozen it learns that it is
		if running, _, err := n.c.List(t.Context()); err != nil || len(running) != 1 || !running[0].Frozen {
			t.Fatalf("the list says %v, %v", running, err)
		}
		freeze(t, n.c, key(1), false)
		waitFor(t, "both to go on", func() bool { return count("main") > main && count("child") > child })
		freeze(t, n.c, key(1), true)
		if err := n.c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		e := nextExit(t, n.c)
		for e.Key == key(2) { // the new agent is told, too
			e = nextExit(t, n.c)
		}
		if e.Key != key(1) || e.Reason != plan.ReasonCanceled {
			t.Errorf("it ended as %+v", e)
		}
		if left := n.processes(); len(left) > 0 {
			t.Errorf("left by what was frozen: %v", left)
		}
	})
}
