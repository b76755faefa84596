package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/clock"
	"rota/internal/need"
)

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

func waitLost(t *testing.T, c *runtime.Client) {
	t.Helper()
	for {
		select {
		case _, ok := <-c.Exits():
			if !ok {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the loss of the supervisor was not told")
		}
	}
}

// A message that quotes a long command fits into the journal, from which the next supervisor knows
// how the attempt ended.
func TestALongReasonIsNotLost(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	c := dial(t, o)
	spec := shell(key(1), "")
	spec.Argv = []string{strings.Repeat(`"`, 30000)}
	start(t, c, spec)
	if e := nextExit(t, c); e.Reason != plan.ReasonStartFailed || len(e.Message) > 5000 {
		t.Errorf("it ended with %v and %d bytes", e.Reason, len(e.Message))
	}
	kill(t, c.Describe().PID, syscall.SIGKILL)
	waitLost(t, c)
	if _, ended, err := dial(t, o).List(t.Context()); err != nil || len(ended) != 1 || ended[0].Reason != plan.ReasonStartFailed {
		t.Errorf("the next supervisor says %+v, %v", ended, err)
	}
}

func TestADeadSupervisorsAttemptsAreKilledAndReported(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		dir := t.TempDir()
		o := options(dir, mode)
		o.HideDevices = true // one more hierarchy, which has to be left in order as well
		c := dial(t, o)
		ended := runOne(t, c, shell(key(1), "exit 3"))
		left := filepath.Join(dir, "left")
		// The daemon has left the session, so that SIGKILL of its parents by the
		// kernel does not concern it.
		start(t, c, shell(key(2), "echo before; "+fmt.Sprintf(daemon, left)+"sleep 1000"))
		pid := readPID(t, left)
		kill(t, c.Describe().PID, syscall.SIGKILL)
		waitLost(t, c)
		if err := c.Start(t.Context(), shell(key(3), "true")); !errors.Is(err, runtime.ErrLost) {
			t.Errorf("start on a lost connection: %v", err)
		}
		again := dial(t, o)
		if alive(pid) {
			t.Errorf("daemon %d is alive after Dial", pid)
		}
		got := map[plan.Key]plan.Exit{}
		for range 2 {
			e := nextExit(t, again)
			got[e.Key] = e
		}
		if e := got[key(1)]; e.Reason != ended.Reason || e.ExitCode != 3 {
			t.Errorf("an end from before: %+v", e)
		}
		if e := got[key(2)]; e.Reason != plan.ReasonSupervisorLost || string(e.Stdout) != "before\n" {
			t.Errorf("the lost one: %+v", e)
		}
		if err := again.Start(t.Context(), shell(key(2), "true")); !errors.Is(err, runtime.ErrDuplicate) {
			t.Errorf("the lost one is known: %v", err)
		}
		if e := runOne(t, again, shell(key(4), "exit 4")); e.ExitCode != 4 {
			t.Errorf("the new supervisor works: %+v", e)
		}
	})
}

func TestAnAgentThatComesBackGetsEverything(t *testing.T) {
	o := options(t.TempDir(), "")
	c := dial(t, o)
	start(t, c, shell(key(1), "exit 5"))
	fifo := filepath.Join(o.Dir, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, c, shell(key(2), "cat "+fifo+"; exit 6"))
	nextExit(t, c)
	c.Close() // nothing was forgotten

	c2 := dial(t, o)
	if c2.Describe().PID != c.Describe().PID {
		t.Fatal("another supervisor")
	}
	if e := nextExit(t, c2); e.Key != key(1) || e.ExitCode != 5 {
		t.Errorf("an end that was not forgotten is told again: %+v", e)
	}
	running, _, err := c2.List(t.Context())
	if err != nil || len(running) != 1 || running[0].Key != key(2) {
		t.Fatalf("runs on: %v, %v", running, err)
	}
	if err := os.WriteFile(fifo, []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if e := nextExit(t, c2); e.Key != key(2) || e.ExitCode != 6 {
		t.Errorf("the end of what was re-adopted: %+v", e)
	}
	if err := c2.Forget(t.Context(), []plan.Key{key(1), key(2)}); err != nil {
		t.Fatal(err)
	}
	c3 := dial(t, o)
	waitLost(t, c2) // the newest connection is the only one
	if e := runOne(t, c3, shell(key(3), "true")); e.Reason != plan.ReasonExited {
		t.Errorf("what was forgotten is not told again: %+v", e)
	}
}

func TestTheDeadlineKillsWhileTheAgentIsFrozen(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) {
		if mode != runtime.ModeAffinity {
			need.Cgroup(t)
			if !hierarchiesHere()[mode] {
				t.Skipf("this machine has no %s", mode)
			}
		}
		dir := t.TempDir()
		left := filepath.Join(dir, "left")
		o := options(dir, mode)
		stopAtEnd(t, o)
		agent := startClient(t, dir, mode, fmt.Sprintf(daemon, left)+"sleep 1000", 500*time.Millisecond, left)
		kill(t, agent.Process.Pid, syscall.SIGSTOP)
		pid := readPID(t, left)
		waitFor(t, "the supervisor to kill", func() bool { return !alive(pid) })
		c := dial(t, o)
		if e := nextExit(t, c); e.Reason != plan.ReasonNodeLost {
			t.Errorf("got %+v", e)
		}
		if err := c.Start(t.Context(), shell(key(2), "true")); !errors.Is(err, runtime.ErrDeadlinePassed) {
			t.Errorf("start after the deadline: %v", err)
		}
		if err := c.SetDeadline(t.Context(), clock.Boottime()+int64(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if e := runOne(t, c, shell(key(2), "exit 9")); e.ExitCode != 9 {
			t.Errorf("with a new deadline: %+v", e)
		}
	})
}

func TestALaterDeadlineReplacesAnEarlierOne(t *testing.T) {
	// A machine that is too busy to replace a deadline before it comes needs longer.
	for in, late := 200*time.Millisecond, true; late; in *= 2 {
		c := dial(t, options(t.TempDir(), ""))
		start(t, c, shell(key(1), fmt.Sprintf("sleep %f; exit 1", 2*in.Seconds())))
		soon := clock.Boottime() + int64(in)
		for _, d := range []int64{soon, soon + int64(time.Hour), soon, 0} {
			if err := c.SetDeadline(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		late = clock.Boottime() >= soon && in < 10*time.Second
		if e := nextExit(t, c); !late && (e.Reason != plan.ReasonExited || e.ExitCode != 1) {
			t.Errorf("got %+v", e)
		}
	}
}

func TestASupervisorNobodyNeedsEnds(t *testing.T) {
	gone := func(pid int) func() bool { return func() bool { return !alive(pid) } }
	t.Run("after a while", func(t *testing.T) {
		o := options(t.TempDir(), "")
		o.Linger = 100 * time.Millisecond
		c := dial(t, o)
		runOne(t, c, shell(key(1), "exit 1"))
		c.Close()
		waitFor(t, "the end of the supervisor", gone(c.Describe().PID))
		if e := nextExit(t, dial(t, o)); e.ExitCode != 1 {
			t.Errorf("the next one tells the end: %+v", e)
		}
	})
	t.Run("after the deadline", func(t *testing.T) {
		dir := t.TempDir()
		o := options(dir, "")
		stopAtEnd(t, o)
		agent := startClient(t, dir, "", "sleep 1000", 300*time.Millisecond, "")
		kill(t, agent.Process.Pid, syscall.SIGKILL)
		waitFor(t, "the end of the supervisor", func() bool {
			_, err := os.Stat(filepath.Join(dir, "supervisor.sock"))
			return errors.Is(err, os.ErrNotExist)
		})
		if e := nextExit(t, dial(t, o)); e.Reason != plan.ReasonNodeLost {
			t.Errorf("the next one tells the end: %+v", e)
		}
	})
	t.Run("told by a signal", func(t *testing.T) {
		o := options(t.TempDir(), "")
		c := dial(t, o)
		start(t, c, shell(key(1), "sleep 1000"))
		kill(t, c.Describe().PID, syscall.SIGTERM)
		if e := nextExit(t, c); e.Reason != plan.ReasonSupervisorLost {
			t.Errorf("the end is told before it ends: %+v", e)
		}
		waitLost(t, c)
		if e := nextExit(t, dial(t, o)); e.Reason != plan.ReasonSupervisorLost {
			t.Errorf("and by the next one: %+v", e)
		}
	})
}

func TestThereIsOneSupervisorPerDirectory(t *testing.T) {
	// The path is too long for a socket address, which must not matter.
	dir, err := os.MkdirTemp("", "one-supervisor-")
	if err != nil {
		t.Fatal(err)
	}
	o := options(filepath.Join(dir, strings.Repeat("long", 30)), "")
	// A process that was started and comes after the end of the test finds the directory
	// free, and ends when no agent comes. Until then it may write there.
	o.Linger = time.Second
	t.Cleanup(func() {
		for range 50 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%s cannot be removed", dir)
	})
	stopAtEnd(t, o)
	pids := make(chan int, 8)
	for range cap(pids) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			c, err := runtime.Dial(ctx, o)
			if err != nil {
				t.Error(err)
				pids <- 0
				return
			}
			defer c.Close()
			pids <- c.Describe().PID
		}()
	}
	first := <-pids
	for range cap(pids) - 1 {
		if pid := <-pids; pid != first {
			t.Errorf("supervisors %d and %d", first, pid)
		}
	}
}

func TestOtherOptionsReplaceASupervisorThatIsIdle(t *testing.T) {
	o := options(t.TempDir(), "")
	c := dial(t, o)
	start(t, c, shell(key(1), "sleep 1000"))
	other := o
	other.Linger = 2 * time.Minute
	busy := dial(t, other)
	if busy.Describe().PID != c.Describe().PID {
		t.Fatal("a busy supervisor was replaced")
	}
	if err := busy.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
		t.Fatal(err)
	}
	nextExit(t, busy)
	idle := dial(t, other)
	if idle.Describe().PID == c.Describe().PID {
		t.Error("an idle supervisor kept its old options")
	}
	if e := nextExit(t, idle); e.Reason != plan.ReasonCanceled {
		t.Errorf("its journal is taken over: %+v", e)
	}
}

// An agent may come back with other rights: what ran without cgroups is found by
// a supervisor that has them, and the other way round.
func TestAnotherModeKillsWhatWasLeft(t *testing.T) {
	need.Cgroup(t)
	for _, modes := range [][2]string{{runtime.ModeAffinity, ""}, {"", runtime.ModeAffinity}} {
		o := options(t.TempDir(), modes[0])
		c := dial(t, o)
		left := filepath.Join(o.Dir, "left")
		start(t, c, shell(key(1), fmt.Sprintf(daemon, left)+"sleep 1000"))
		pid := readPID(t, left)
		kill(t, c.Describe().PID, syscall.SIGKILL)
		waitLost(t, c)
		o.Mode = modes[1]
		if e := nextExit(t, dial(t, o)); e.Reason != plan.ReasonSupervisorLost || alive(pid) {
			t.Errorf("%q then %q: alive %v, %+v", modes[0], modes[1], alive(pid), e)
		}
	}
}
