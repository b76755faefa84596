package fsm

import (
	"cmp"
	"fmt"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// benchCluster is a state with nodes of 128 cores and a queue that nothing can
// start from until something ends.
func benchCluster(b *testing.B, nodes int) *state.State {
	b.Helper()
	s := state.New()
	index := uint64(1)
	do := func(c ...*logv1.Command) {
		s, _, _ = apply(s.Copy, index, &logv1.Entry{TimeNs: int64(index), Commands: c}, sched.Deciders(), nil)
		index++
	}
	do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "bench"}}})
	var cpus []uint32
	for c := range uint32(128) {
		cpus = append(cpus, c)
	}
	for n := range nodes {
		do(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: fmt.Sprintf("node-%d", n), JournalId: "j", MemoryBytes: 512 << 30,
			NumaNodes: []*logv1.NumaNode{{Cpus: cpus[:64]}, {Cpus: cpus[64:]}},
		}}})
	}
	return s
}

func submission(n int) *logv1.Command {
	c := &logv1.SubmitActions{}
	for range n {
		c.Actions = append(c.Actions, &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, Spec: make([]byte, 300)})
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}
}

// BenchmarkAction is the whole life of an action in the state machine, decoding
// included: submitted, scheduled, reported. One operation is one action; entries
// hold batch commands, as under load.
func BenchmarkAction(b *testing.B) {
	for _, nodes := range []int{1, 100, 10_000} {
		for _, batch := range []int{1, 64} {
			b.Run(fmt.Sprintf("nodes=%d/batch=%d", nodes, batch), func(b *testing.B) { benchAction(b, nodes, batch) })
		}
	}
}

func benchAction(b *testing.B, nodes, batch int) {
	s := benchCluster(b, nodes)
	index := uint64(nodes + 10)
	submit := make([]*logv1.Command, batch)
	for i := range submit {
		submit[i] = submission(1)
	}
	in, err := (&logv1.Entry{TimeNs: 1, Commands: submit}).MarshalVT()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		s = applyEncoded(b, s, &index, in)
		first := s.Meta().LastAction - state.ActionID(batch) + 1
		reports := make([]*logv1.Command, batch)
		b.StopTimer()
		for i := range reports {
			a := s.Action(first + state.ActionID(i))
			n := s.Node(a.Node)
			reports[i] = &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
				Node: n.Name, Incarnation: n.Incarnation,
				Reports: []*logv1.AttemptReport{{ActionId: uint64(a.ID), Attempt: 1, Reason: 1}},
			}}}
		}
		out, err := (&logv1.Entry{TimeNs: 1, Commands: reports}).MarshalVT()
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		s = applyEncoded(b, s, &index, out)
	}
}

func applyEncoded(b *testing.B, s *state.State, index *uint64, data []byte) *state.State {
	var e logv1.Entry
	if err := e.UnmarshalVT(data); err != nil {
		b.Fatal(err)
	}
	*index++
	s, results, _ := apply(s.Copy, *index, &e, sched.Deciders(), nil)
	if r := results[0].Refusal; r != nil {
		b.Fatal(r)
	}
	return s
}

// BenchmarkSubmitHeld is a submission into a full cluster with a long queue: what
// `rota bench submit` measures of the state machine.
func BenchmarkSubmitHeld(b *testing.B) {
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := benchCluster(b, 1)
			index := uint64(100)
			s, _, _ = apply(s.Copy, index, &logv1.Entry{Commands: []*logv1.Command{submission(1000)}}, sched.Deciders(), nil)
			in, err := (&logv1.Entry{TimeNs: 1, Commands: []*logv1.Command{submission(batch)}}).MarshalVT()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N && done < 1_500_000; done += batch {
				s = applyEncoded(b, s, &index, in)
			}
		})
	}
}

// BenchmarkTrajectory is a trajectory that opens and closes on one of 10,000 nodes,
// as one of a group and without. One operation is both entries.
func BenchmarkTrajectory(b *testing.B) {
	for _, label := range []string{"", "zone", "host"} {
		b.Run("spread="+cmp.Or(label, "none"), func(b *testing.B) { benchTrajectory(b, label) })
	}
}

func benchTrajectory(b *testing.B, label string) {
	const nodes = 10_000
	s := benchCluster(b, nodes)
	s.Nodes(0, func(r *state.Node) bool {
		n := *r
		n.Labels = []state.Label{{Key: "host", Value: r.Name}, {Key: "zone", Value: string(rune('a' + r.ID%3))}}
		s.PutNode(&n)
		return true
	})
	index := uint64(nodes + 10)
	open := &logv1.OpenTrajectory{MemoryBytes: 1 << 30}
	if label != "" {
		open.SpreadGroup, open.SpreadLabel = "g", label
	}
	encoded := func(c *logv1.Command) []byte {
		data, err := (&logv1.Entry{TimeNs: 1, Commands: []*logv1.Command{c}}).MarshalVT()
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	opening := encoded(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: open}})
	for range 1000 { // which stay
		s = applyEncoded(b, s, &index, opening)
	}
	b.ReportAllocs()
	for b.Loop() {
		s = applyEncoded(b, s, &index, opening)
		id := uint64(s.Meta().LastTrajectory)
		s = applyEncoded(b, s, &index, encoded(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: id}}}))
	}
}
