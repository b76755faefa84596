package agent

import (
	"bytes"
	"strings"
	"testing"

	"rota/agent/plan"
)

// endDuringAnOutage lets n attempts with full output end while no server takes
// reports, and returns their keys when servers answer again.
func endDuringAnOutage(t *testing.T, c *cluster, n int) (keys []plan.Key) {
	t.Helper()
	s := newSupervisor(t)
	s.exitsMax = n
	start(t, config(t, c, s))
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	c.change(func() {
		c.noReports = true
		for i := range uint64(n) {
			key := plan.Key{Action: 1000 + i, Attempt: 1, Incarnation: c.incarnation}
			c.desired[key] = assignment(key.Action)
			keys = append(keys, key)
		}
	})
	s.untilRuns(keys...)
	s.lock()
	for _, key := range keys {
		s.end(plan.Exit{Key: key, Reason: plan.ReasonExited, ExitCode: 7, Stdout: bytes.Repeat([]byte("x"), plan.ReportTailsMax)})
	}
	s.unlock()
	c.until("a report that fails", func(c *cluster) bool { return c.reported > 0 })
	c.change(func() { c.noReports = false })
	return keys
}

// What ends during an outage is more than servers read at once.
func TestEndsOfAnOutageAreReportedInPieces(t *testing.T) {
	c := newCluster(t, 1)
	for _, key := range endDuringAnOutage(t, c, 1100) {
		if r := c.result(key); r.ExitCode != 7 || len(r.StdoutTail) != plan.ReportTailsMax {
			t.Fatalf("%s was reported with exit code %d and %d bytes", key, r.ExitCode, len(r.StdoutTail))
		}
	}
}

// Servers that read less than the agent thinks refuse batches until they fit.
func TestABatchThatIsTooLargeIsSplit(t *testing.T) {
	c := newClusterReading(t, 1, 12<<10)
	for _, key := range endDuringAnOutage(t, c, 50) {
		if r := c.result(key); r.ExitCode != 7 || len(r.StdoutTail) != plan.ReportTailsMax {
			t.Fatalf("%s was reported with exit code %d and %d bytes", key, r.ExitCode, len(r.StdoutTail))
		}
	}
}

// A report that no server reads even alone is sent without its output.
func TestAReportThatIsTooLargeLosesItsOutput(t *testing.T) {
	c := newClusterReading(t, 1, 2<<10)
	for _, key := range endDuringAnOutage(t, c, 5) {
		r := c.result(key)
		if r.ExitCode != 7 || len(r.StdoutTail) != 0 || !strings.Contains(r.Message, "output is missing") {
			t.Fatalf("%s was reported as %v", key, r)
		}
	}
}
