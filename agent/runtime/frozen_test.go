package runtime_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// TestAFrozenSupervisorIsReplaced by an agent that it does not answer, and what it ran is dead by then.
func TestAFrozenSupervisorIsReplaced(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	o.Patience = 300 * time.Millisecond
	c := dial(t, o)
	left := filepath.Join(o.Dir, "left")
	start(t, c, shell(key(1), "echo $$ > "+left+"; exec sleep 1000"))
	pid := readPID(t, left)
	c.Close()
	kill(t, c.Describe().PID, syscall.SIGSTOP)
	again := dial(t, o)
	if alive(pid) || alive(c.Describe().PID) {
		t.Errorf("command %d or supervisor %d is alive after Dial", pid, c.Describe().PID)
	}
	if e := nextExit(t, again); e.Key != key(1) || e.Reason != plan.ReasonSupervisorLost {
		t.Errorf("its attempt: %+v", e)
	}
}

// TestOnlyAFrozenSupervisorIsKilled: one that answers goes on, with its agent.
func TestOnlyAFrozenSupervisorIsKilled(t *testing.T) {
	o := options(t.TempDir(), runtime.ModeAffinity)
	if pid, err := runtime.KillFrozen(t.Context(), o.Dir, time.Minute); pid != 0 || err != nil {
		t.Errorf("without a supervisor: %d, %v", pid, err)
	}
	c := dial(t, o)
	if pid, err := runtime.KillFrozen(t.Context(), o.Dir, time.Minute); pid != 0 || err != nil {
		t.Errorf("with a supervisor that answers: %d, %v", pid, err)
	}
	if e := runOne(t, c, shell(key(1), "true")); e.Reason != plan.ReasonExited {
		t.Errorf("then: %+v", e)
	}
	kill(t, c.Describe().PID, syscall.SIGSTOP)
	if pid, err := runtime.KillFrozen(t.Context(), o.Dir, 100*time.Millisecond); pid != c.Describe().PID || err != nil {
		t.Errorf("killed %d, %v; want %d", pid, err, c.Describe().PID)
	}
	waitLost(t, c)
	dial(t, o)
}
