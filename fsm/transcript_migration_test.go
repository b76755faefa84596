package fsm

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched/transmit"
)

// parseMigrationCommand reads
//
//	migrate from=n1 to=n2 traj=1 length=5 wait=10m run=5m selector=s req=r1
//	cancel-migration id=1
//	migration-report node=n2 inc=2 id=1 done=yes total=10 moved=6 message=m
//
// and else what parseRolloutCommand reads.
func parseMigrationCommand(verb string, a args) *logv1.Command {
	switch verb {
	case "migrate":
		return &logv1.Command{Verb: &logv1.Command_RequestMigration{RequestMigration: &logv1.RequestMigration{
			Request: a.request(), Namespace: a.text("ns"), TrajectoryId: a.num("traj", 0), Source: a.text("from"), Target: a.text("to"),
			Selector: []byte(cmp.Or(a.text("selector"), "s")), Length: a.num("length", 0), QueueTimeoutNs: a.dur("wait"), RunTimeoutNs: a.dur("run"),
		}}}
	case "cancel-migration":
		return &logv1.Command{Verb: &logv1.Command_CancelMigration{CancelMigration: &logv1.CancelMigration{Id: a.num("id", 0)}}}
	case "migration-report":
		total, moved := a.num("total", 0), a.num("moved", 0)
		return &logv1.Command{Verb: &logv1.Command_ReportMigrations{ReportMigrations: &logv1.ReportMigrations{
			Node: a.text("node"), Incarnation: a.num("inc", 1),
			Reports: []*logv1.MigrationReport{{
				MigrationId: a.num("id", 0), Done: a.text("done") != "", Message: a.text("message"),
				Values: total, TotalBytes: total, MovedBytes: moved, PresentBytes: total - min(total, moved),
			}},
		}}}
	}
	return parseRolloutCommand(verb, a)
}

var (
	migrationStates  = []string{"", "queued", "running", "done", "failed", "abandoned", "canceled"}
	migrationReasons = []string{"", ": gap ended", ": trajectory ended", ": queue timeout", ": run timeout", ": node lost", ": canceled", ": transfer", ": internal"}
	obstacles        = []string{"nothing", "node down", "target drains", "no cache", "no gap", "node busy"}
)

// migrations says which migrations are in another state than before.
func (s *story) migrations(were *state.State) string {
	var out strings.Builder
	s.state.Migrations(0, func(m *state.Migration) bool {
		if old := were.Migration(m.ID); old == nil || old.State != m.State {
			fmt.Fprintf(&out, "   migration %d from %s to %s %s%s", m.ID, s.nodeName(m.Source), s.nodeName(m.Target), migrationStates[m.State], migrationReasons[m.Reason])
			if m.Message != "" {
				fmt.Fprintf(&out, " %q", m.Message)
			}
			if m.Progress.Total > 0 {
				fmt.Fprintf(&out, ", %d of %d bytes moved", m.Progress.Moved, m.Progress.Total)
			}
			out.WriteString("\n")
		}
		return true
	})
	were.Migrations(0, func(m *state.Migration) bool {
		if s.state.Migration(m.ID) == nil {
			fmt.Fprintf(&out, "   migration %d forgotten\n", m.ID)
		}
		return true
	})
	return out.String()
}

func (s *story) explainMigration(t *testing.T, d *datadriven.TestData) string {
	var id uint64
	d.ScanArgs(t, "migration", &id)
	w := MigrationWaits(s.state, s.state.Migration(state.MigrationID(id)))
	out := obstacles[w.Obstacle]
	if w.Node != 0 {
		out += " " + s.nodeName(w.Node)
	}
	if w.Migration != 0 {
		out += fmt.Sprintf(" with %d", w.Migration)
	}
	return out + "\n"
}

// migrationLine draws what clients and nodes say of migrations; IDs are near those that exist.
func migrationLine(n func(string, int) int, s *story, node string) string {
	m := s.state.Meta()
	id := n("migration", int(m.LastMigration)+1)
	switch n("change", 5) {
	case 0:
		return fmt.Sprintf("cancel-migration id=%d", id)
	case 1, 2:
		inc := uint64(n("inc", int(m.LastIncarnation)))
		if row := s.state.Migration(state.MigrationID(id)); row != nil && n("known", 4) > 0 {
			node, inc = s.nodeName(row.Target), row.TargetIncarnation
		}
		return fmt.Sprintf("migration-report node=%s inc=%d id=%d done=%s message=m total=%d moved=%d", node, inc, id, []string{"", "yes"}[n("done", 1)], n("total", 9), n("moved", 3))
	}
	return fmt.Sprintf("migrate from=%s to=n%d traj=%d length=%d wait=%ds run=%ds ns=%s req=%s expires=%ds", node, 1+n("to", 3),
		n("traj", int(m.LastTrajectory)+1), n("length", 3), n("wait", 40), n("run", 40), []string{"", "", "", "team"}[n("ns", 3)], []string{"", "", "m1", "m2"}[n("req", 3)], n("expires", 200))
}

// checkWaits: after every entry, exactly the queued migrations wait for
// something, whatever happened.
func (s *story) checkWaits(t rapid.TB) {
	t.Helper()
	s.state.Migrations(0, func(m *state.Migration) bool {
		if w := MigrationWaits(s.state, m); (w.Obstacle == transmit.None) == (m.State == state.MigrationQueued) {
			t.Fatalf("migration %d in state %d waits for %+v at %v", m.ID, m.State, w, time.Duration(s.now))
		}
		return true
	})
}
