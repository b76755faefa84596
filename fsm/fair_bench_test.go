package fsm

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// BenchmarkNamespaces is the life of an action at the newest level, as BenchmarkAction has it, with
// some namespaces that take turns. One operation is one action; entries hold 64 commands.
func BenchmarkNamespaces(b *testing.B) {
	const batch = 64
	for _, namespaces := range []int{1, 2, 16, 256} {
		b.Run(fmt.Sprint("namespaces=", namespaces), func(b *testing.B) {
			d := newDriver(b)
			d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
			names := []string{""}
			for i := 1; i < namespaces; i++ {
				names = append(names, fmt.Sprint("ns", i))
				d.do(createNamespace(names[i]))
			}
			d.registerNodes(100, 16)
			submissions := make([]*logv1.Command, batch)
			fill := func(from int) {
				for i := range submissions {
					submissions[i] = submission(1)
					submissions[i].GetSubmitActions().Namespace = names[(from+i)%namespaces]
				}
				d.do(submissions...)
				d.settle()
			}
			for i := range 64 { // 1,600 run, and about 2,500 wait
				fill(i * batch)
			}
			next := state.ActionID(1)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += batch {
				b.StopTimer()
				var reports []*logv1.Command
				for ; len(reports) < batch; next++ {
					if a := d.state.Action(next); a != nil && a.State == state.ActionRunning {
						reports = append(reports, d.reported(next))
					} else if next > d.state.Meta().LastAction {
						next = 0
					}
				}
				b.StartTimer()
				fill(done)
				d.do(reports...)
				d.settle()
			}
		})
	}
}

// BenchmarkEndOfLimited is the end of an action of a namespace with a limit, of which others wait on
// each of 1,000 nodes. One operation is one action.
func BenchmarkEndOfLimited(b *testing.B) {
	const nodes = 1000
	for _, limits := range []*logv1.UpdateNamespace{{RunningMax: proto.Uint32(100)}, {CoresMax: proto.Uint32(100)}} {
		b.Run(fmt.Sprintf("running=%d/cores=%d", limits.GetRunningMax(), limits.GetCoresMax()), func(b *testing.B) {
			d := newDriver(b)
			d.do(&logv1.Command{Verb: &logv1.Command_RaiseLevel{RaiseLevel: &logv1.RaiseLevel{Level: 3}}})
			d.do(createNamespace("a"))
			limits.Name = "a"
			d.do(setNamespace(limits))
			d.registerNodes(nodes, 4)
			submit := func(trajectory uint64, n int) {
				c := submission(n)
				c.GetSubmitActions().Namespace = "a"
				for _, a := range c.GetSubmitActions().Actions {
					a.TrajectoryId = trajectory
				}
				d.do(c)
				d.settle()
			}
			for i := range uint64(nodes) {
				d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{Namespace: "a", MemoryBytes: 1}}})
				submit(i+1, 4)
			}
			next := state.ActionID(1)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				for ; d.state.Action(next) == nil || d.state.Action(next).State != state.ActionRunning; next++ {
					if next > d.state.Meta().LastAction {
						next = 0
					}
				}
				a := d.state.Action(next)
				submit(uint64(a.Trajectory), 1)
				b.StartTimer()
				d.do(d.reported(next))
				d.settle()
			}
		})
	}
}
