package fsm

import (
	"fmt"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// BenchmarkQuotaPass is one call through a busy quota: its unit comes back, the
// oldest of those that wait gets it and starts. One operation is one call, entries
// hold 50 of them; the queue is as long as the name says.
func BenchmarkQuotaPass(b *testing.B) {
	for _, kind := range []state.QuotaKind{state.QuotaConcurrency, state.QuotaSlidingWindow} {
		for _, waiting := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("kind=%d/waiting=%d", kind, waiting), func(b *testing.B) { benchQuota(b, kind, waiting) })
		}
	}
}

func benchQuota(b *testing.B, kind state.QuotaKind, waiting int) {
	const limit, window, batch = 100, 100_000_000, 50
	s := benchCluster(b, 100)
	create := &logv1.CreateQuota{Name: "q", Kind: uint32(kind), Limit: limit, Keys: 4}
	if kind != state.QuotaConcurrency {
		create.WindowNs = window
	}
	now, index := int64(1000), uint64(1000)
	do := func(c ...*logv1.Command) {
		index++
		s, _, _ = apply(s.Copy, index, &logv1.Entry{TimeNs: now, Commands: c}, sched.Deciders(), nil)
	}
	do(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: create}})
	oldest := state.ActionID(1)
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		b.StopTimer()
		for s.Counts().Queued < waiting {
			do(calls(1000))
		}
		b.StartTimer()
		for s.Action(oldest+batch-1).State == state.ActionQueued { // until units come back
			now += window / 100
			do()
		}
		reports := make([]*logv1.Command, batch)
		for i := range reports {
			a := s.Action(oldest + state.ActionID(i))
			n := s.Node(a.Node)
			reports[i] = &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
				Node: n.Name, Incarnation: n.Incarnation, Reports: []*logv1.AttemptReport{{ActionId: uint64(a.ID), Attempt: 1, Reason: 1}},
			}}}
		}
		oldest += batch
		do(reports...)
	}
}

func calls(n int) *logv1.Command {
	c := &logv1.SubmitActions{}
	for range n {
		c.Actions = append(c.Actions, &logv1.Action{
			AttemptsMax: 1, Spec: make([]byte, 300), Needs: &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "q", Units: 1}}},
		})
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}
}
