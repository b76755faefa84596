package agent

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// waitForLog waits until the log of an agent says something.
func (p *process) waitForLog(text string) {
	p.t.Helper()
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		log, err := os.ReadFile(p.dir + ".log")
		if err != nil {
			p.t.Fatal(err)
		}
		if strings.Contains(string(log), text) {
			return
		}
		if time.Now().After(limit) {
			p.t.Fatalf("the agent does not say %q", text)
		}
	}
}

// TestAnAgentIsCutOffAndHasGivenUpItsFrozenSupervisor: a call that the supervisor does not answer ends the
// connection, and no other one comes about. The supervisor is killed all the same when the lease ends.
func TestAnAgentIsCutOffAndHasGivenUpItsFrozenSupervisor(t *testing.T) {
	c, w := newCluster(t, 1), newWitness(t)
	c.lease = 8 * time.Second
	p := newProcess(t, c)
	key := c.assign(1, sh(untilScript, w.path)...)
	pid := w.pid()
	if err := syscall.Kill(supervisorOf(t, p.dir), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.change(func() { c.desired[key].Freeze = 1 })
	p.waitForLog("lost the supervisor")
	c.change(func() { c.noLeases = true })
	cutOff := time.Now()
	gone(t, pid)
	if took := time.Since(cutOff); took > c.lease {
		t.Errorf("the command died %v after the last renewal, at a lease of %v", took, c.lease)
	}
	c.change(func() { c.noLeases = false })
	c.result(key)
	if r := c.result(c.assign(2, "true")); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("the next was reported as %v", r)
	}
}

// TestADeadlineThatIsNotAnswered costs a connection, and not the work of the node for ever.
func TestADeadlineThatIsNotAnswered(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	s.unanswered = 1
	start(t, config(t, c, s))
	s.untilRuns(c.assign(1))
}
