package fsm

import (
	"fmt"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// ledgerState has 256 groups of 4 nodes and 200 jobs with the cycle of PlexRL's 7B
// model (Table 2), and stays as it is.
func ledgerState(b *testing.B) (*state.State, uint64) {
	b.Helper()
	s, index := state.New(), uint64(0)
	do := func(commands ...*logv1.Command) {
		index++
		next, results, _ := apply(s.Copy, index, &logv1.Entry{TimeNs: int64(index) * int64(time.Second), Commands: commands}, sched.Deciders(), nil)
		for _, r := range results {
			if r.Refusal != nil {
				b.Fatal(r.Refusal)
			}
		}
		s = next
	}
	do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "bench"}}})
	for i := range 256 {
		do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: fmt.Sprint("g", i), Nodes: 4}}})
	}
	for i := range 200 {
		do(submitBench(fmt.Sprint("j", i), 270+int64(i%5)))
	}
	for s.HasWork() {
		do(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	}
	return s, index
}

func submitBench(name string, period int64) *logv1.Command {
	second := int64(time.Second)
	return &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Name: name, Nodes: 4, Cycle: &logv1.Cycle{
		PeriodNs: period * second, Segments: []*logv1.Segment{{OffsetNs: 100 * second, LengthNs: 60 * second, Nodes: 4}},
	}}}}
}

// BenchmarkPlaceJob submits one job more, which is placed in the same entry.
func BenchmarkPlaceJob(b *testing.B) {
	s, index := ledgerState(b)
	e := &logv1.Entry{TimeNs: s.Meta().Now + 1, Commands: []*logv1.Command{submitBench("one-more", 273)}}
	b.ReportAllocs()
	for b.Loop() {
		next, results, _ := apply(s.Copy, index+1, e, sched.Deciders(), nil)
		if results[0].Refusal != nil || next.JobByName(1, "one-more").Group == 0 {
			b.Fatalf("not placed: %v", results[0])
		}
	}
}

// BenchmarkTurn has a job acquire a turn and yield it, in two entries, each with a
// step of its own, so that a cycle ends each time.
func BenchmarkTurn(b *testing.B) {
	s, index := ledgerState(b)
	now := s.Meta().Now + int64(1000*time.Second)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		index, now = index+2, now+int64(273*time.Second)
		acquire := &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{
			Job: "j7", Deployment: "actor", Step: uint64(i + 1), ExpectNs: int64(60 * time.Second),
		}}}
		next, results, _ := apply(s.Copy, index, &logv1.Entry{TimeNs: now, Commands: []*logv1.Command{acquire}}, sched.Deciders(), nil)
		t := next.Turn(state.TurnID(results[0].FirstId))
		end := &logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: &logv1.EndTurn{TurnId: uint64(t.ID), Token: t.Token, Reason: endYielded}}}
		if t.State == state.TurnWaiting {
			end.GetEndTurn().Reason = endCanceled
		}
		s, results, _ = apply(next.Copy, index+1, &logv1.Entry{TimeNs: now + int64(60*time.Second), Commands: []*logv1.Command{end}}, sched.Deciders(), nil)
		if results[0].Refusal != nil {
			b.Fatal(results[0].Refusal)
		}
	}
}
