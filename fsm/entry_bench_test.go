package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// BenchmarkOneVerb is what a thousand of one thing cost where 10,000 nodes are full.
// What they set off, such as starts, is among it. One operation is one of a thousand.
func BenchmarkOneVerb(b *testing.B) {
	const many = 1000
	full := fullCluster(b)
	for _, c := range []struct {
		name     string
		commands func(d *driver) []*logv1.Command
	}{
		{"submit", func(*driver) []*logv1.Command { return []*logv1.Command{submission(many)} }},
		{"report and start", func(d *driver) []*logv1.Command { return d.reports(many) }},
		{"cancel queued", func(*driver) []*logv1.Command { return cancellation(600_001, many) }},
		{"cancel running", func(*driver) []*logv1.Command { return cancellation(1, many) }},
		{"register", func(*driver) (all []*logv1.Command) {
			for i := range many {
				all = append(all, registration(fmt.Sprint("new", i), 60))
			}
			return all
		}},
		{"register again", func(d *driver) (all []*logv1.Command) {
			for i := range many {
				all = append(all, registration(fmt.Sprint("node-", i), 60))
			}
			return all
		}},
		{"open trajectory", func(*driver) []*logv1.Command {
			return slices.Repeat([]*logv1.Command{{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{}}}}, many)
		}},
		{"drain", func(*driver) (all []*logv1.Command) {
			for i := range many {
				all = append(all, &logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{Name: fmt.Sprint("node-", i), Draining: true}}})
			}
			return all
		}},
		{"low disk", func(d *driver) (all []*logv1.Command) {
			for i := range many {
				n := d.state.NodeByName(fmt.Sprint("node-", i))
				all = append(all, &logv1.Command{Verb: &logv1.Command_ReportDisk{ReportDisk: &logv1.ReportDisk{Name: n.Name, Incarnation: n.Incarnation, Low: true}}})
			}
			return all
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			for range b.N {
				d := *full
				commands := c.commands(&d)
				d.measure()
				d.do(commands...)
				took += d.took[0]
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/many, "ns/each")
		})
	}
}

func (d *driver) reports(n int) []*logv1.Command {
	reports := make([]*logv1.Command, n)
	for i := range reports {
		reports[i] = d.reported(state.ActionID(1 + 7*i))
	}
	return reports
}

func cancellation(first uint64, n int) []*logv1.Command {
	c := &logv1.CancelActions{}
	for i := range n {
		c.Ids = append(c.Ids, first+uint64(i))
	}
	return []*logv1.Command{{Verb: &logv1.Command_CancelActions{CancelActions: c}}}
}
