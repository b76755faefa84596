package replica

import (
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
)

// TestEntriesAreBoundedByWeight fills queues with proposals that are small on the wire:
// what they cost to apply decides how many of them share an entry.
func TestEntriesAreBoundedByWeight(t *testing.T) {
	report := func(n int) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
			Node: "n", Incarnation: 1, Reports: make([]*logv1.AttemptReport, n),
		}}}
	}
	submit := &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: make([]*logv1.Action, 1)}}}
	const most = fsm.EntryWeight / fsm.ReportWeight
	for name, c := range map[string]struct {
		command *logv1.Command
		n       int
		want    int // proposals in the first entry
	}{
		"submissions":         {submit, 5000, fsm.EntryWeight},
		"reports":             {report(1), 5000, most},
		"reports in batches":  {report(most / 4), 10, 4},
		"more than one entry": {report(2 * most), 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(1 << 30)
			for range c.n {
				if err := q.push(newProposal(1, []*logv1.Command{c.command})); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(q.take(1<<20, fsm.EntryWeight)); got != c.want {
				t.Errorf("the first entry has %d proposals, want %d", got, c.want)
			}
		})
	}
}
