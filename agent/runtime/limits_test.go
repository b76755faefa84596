package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"rota/agent/plan"
	"rota/internal/need"
)

// No limit of memory, however small, takes the supervisor along, or another attempt.
func TestSmallMemoryLimitsHurtNobodyElse(t *testing.T) {
	need.Cgroup(t)
	forEachMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		beside := key(1)
		start(t, c, shell(beside, "sleep 1000"))
		limits := []uint64{1, 2, 511, 512, 4095, 4096, 4097, 8192, 65536, 200_000, 1 << 20}
		for i, limit := range limits {
			spec := shell(key(uint64(i)+2), "echo ran")
			spec.MemoryBytes = limit
			switch e := runOne(t, c, spec); e.Reason {
			case plan.ReasonStartFailed, plan.ReasonOutOfMemory, plan.ReasonExited, plan.ReasonSignaled:
			default:
				t.Errorf("limit of %d bytes: %+v", limit, e)
			}
		}
		running, _, err := c.List(t.Context())
		if err != nil || len(running) != 1 || running[0].Key != beside {
			t.Errorf("after all limits %v runs, %v", running, err)
		}
	})
}

// The kernel ends attempts before the supervisor, whatever protects that one.
func TestAttemptsGoFirstWhenMemoryIsShort(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	e := runOne(t, c, shell(key(1), "cat /proc/self/oom_score_adj; cat /proc/$PPID/oom_score_adj"))
	scores := strings.Fields(string(e.Stdout))
	if len(scores) != 2 || scores[0] != "500" || scores[1] == "500" {
		t.Errorf("an attempt has the score %v (its own, the supervisor's): %+v", scores, e)
	}
}

// A command with many busy processes gets no more of a CPU than another with one. Each is
// a session of its own, which the kernel's autogroups take for a user.
func TestManyProcessesShareOnePartOfACPU(t *testing.T) {
	need.Cgroup(t)
	need.Tool(t, "setsid")
	forEachMode(t, func(t *testing.T, mode string) {
		c := dial(t, options(t.TempDir(), mode))
		if strings.Contains(strings.Join(c.Describe().NotEnforced, ";"), "equal parts of CPU time") {
			t.Skip("no equal parts of CPU time here")
		}
		const processes = 30
		many := shell(key(1), fmt.Sprintf(`for i in $(seq %d); do setsid sh -c 'while :; do :; done' & done; wait`, processes))
		one := shell(key(2), `timeout 1 sh -c 'while :; do :; done'`)
		many.CPUs, one.CPUs = []int{0}, []int{0}
		start(t, c, many)
		got := runOne(t, c, one).CPU
		if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
			t.Fatal(err)
		}
		theirs := nextExit(t, c).CPU
		t.Logf("one process had %v of CPU time, the others together %v", got, theirs)
		if theirs > processes/3*got {
			t.Errorf("%d processes had %v of CPU time in all, and one that ran beside them %v", processes, theirs, got)
		}
	})
}

// A command without CPUs of its own makes way for one that has the CPU.
func TestAttemptsWithoutCPUsMakeWay(t *testing.T) {
	need.Cgroup(t)
	need.Tool(t, "taskset")
	c := dial(t, options(t.TempDir(), ""))
	if strings.Contains(strings.Join(c.Describe().NotEnforced, ";"), "equal parts of CPU time") {
		t.Skip("no equal parts of CPU time here")
	}
	start(t, c, shell(key(1), `exec taskset -c 0 sh -c 'while :; do :; done'`))
	owner := shell(key(2), `timeout 1 sh -c 'while :; do :; done'`)
	owner.CPUs = []int{0}
	got := runOne(t, c, owner).CPU
	if err := c.Kill(t.Context(), key(1), plan.ReasonCanceled); err != nil {
		t.Fatal(err)
	}
	theirs := nextExit(t, c).CPU
	t.Logf("the owner of the CPU had %v of it, the other %v", got, theirs)
	if 3*theirs > got {
		t.Errorf("one without CPUs had %v of CPU time, and the owner of the CPU %v", theirs, got)
	}
}

// A command that forks without end reaches the limit of its processes, and others do
// not notice.
func TestProcessesAreLimited(t *testing.T) {
	need.Cgroup(t)
	o := options(t.TempDir(), "")
	o.ProcessesMax = 20
	c := dial(t, o)
	if strings.Contains(strings.Join(c.Describe().NotEnforced, ";"), "pids") {
		t.Skip("no pids controller here")
	}
	start(t, c, shell(key(1), `(for i in $(seq 100); do sleep 1000 & done) 2>/dev/null; exec sleep 1000`))
	e := runOne(t, c, shell(key(2), `for i in $(seq 10); do true & done; wait; echo well`))
	if string(e.Stdout) != "well\n" {
		t.Errorf("beside it: %+v", e)
	}
	e = runOne(t, c, shell(key(3), `for i in $(seq 100); do sleep 1000 & done`))
	if e.ExitCode == 0 || !strings.Contains(string(e.Stderr), "fork") {
		t.Errorf("100 processes were started with a limit of %d: %+v", o.ProcessesMax, e)
	}
}
