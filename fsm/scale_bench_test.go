package fsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// driver applies entries to a state of its own, and keeps how long each took.
type driver struct {
	testing.TB
	state *state.State
	index uint64
	now   int64
	took  []time.Duration
}

func newDriver(t testing.TB) *driver {
	t.Helper()
	d := &driver{TB: t, state: state.New(), now: int64(time.Second)}
	d.do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "scale", Settings: &logv1.Settings{QueueActionsMax: 10_000_000, QueueBytesMax: 1 << 40},
	}}})
	return d
}

// do applies an entry, of which no command may be refused.
func (d *driver) do(commands ...*logv1.Command) []*logv1.Result {
	d.Helper()
	results := d.try(commands...)
	for _, r := range results {
		if r.Refusal != nil {
			d.Fatal(r.Refusal)
		}
	}
	return results
}

func (d *driver) try(commands ...*logv1.Command) (results []*logv1.Result) {
	d.index++
	d.now += int64(time.Microsecond)
	began := time.Now()
	d.state, results, _ = apply(d.state.Copy, d.index, &logv1.Entry{TimeNs: d.now, Commands: commands}, sched.Deciders(), nil)
	d.took = append(d.took, time.Since(began))
	return results
}

// settle ticks until no work is left.
func (d *driver) settle() {
	d.Helper()
	for range 1_000_000 {
		if !d.state.HasWork() {
			return
		}
		d.do(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	}
	d.Fatal("work goes on for ever")
}

// worst reports the longest of the entries since it was called last, and the median.
func (d *driver) worst(b *testing.B) {
	slices.Sort(d.took)
	b.ReportMetric(float64(d.took[len(d.took)-1].Microseconds())/1000, "worst-ms/entry")
	b.ReportMetric(float64(d.took[len(d.took)/2].Microseconds())/1000, "median-ms/entry")
}

func (d *driver) register(name string, cores int) { d.do(registration(name, cores)) }

// registerNodes registers node-0, node-1 and so on.
func (d *driver) registerNodes(n, cores int) {
	for i := range n {
		d.register(fmt.Sprint("node-", i), cores)
	}
}

func registration(name string, cores int) *logv1.Command {
	cpus := make([]uint32, cores)
	for c := range cpus {
		cpus[c] = uint32(c)
	}
	return &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: name, JournalId: "j", MemoryBytes: 512 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: cpus}},
	}}}
}

// reported is what the node of a running action says when that has ended.
func (d *driver) reported(id state.ActionID) *logv1.Command {
	a := d.state.Action(id)
	n := d.state.Node(a.Node)
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: n.Name, Incarnation: n.Incarnation,
		Reports: []*logv1.AttemptReport{{ActionId: uint64(id), Attempt: a.Attempt, Reason: uint32(state.EndExited)}},
	}}}
}

// fullCluster has 10,000 nodes with 600,000 running and 100,000 queued actions.
func fullCluster(b *testing.B) *driver {
	const nodes, cores, queued = 10_000, 60, 100_000
	d := newDriver(b)
	d.registerNodes(nodes, cores)
	for range (nodes*cores + queued) / 4000 {
		d.do(submission(4000))
	}
	d.settle()
	if c := d.state.Counts(); c.Running != nodes*cores || c.Queued != queued {
		b.Fatalf("%d running and %d queued", c.Running, c.Queued)
	}
	return d
}

// BenchmarkFullCluster is what a report, with the start of the next action, and a
// submission cost where everything is full. One operation is one action; entries hold 64
// commands.
func BenchmarkFullCluster(b *testing.B) {
	full := fullCluster(b)
	const batch = 64
	b.Run("report and start", func(b *testing.B) {
		d := *full
		next := state.ActionID(1)
		for done := 0; done < b.N; done += batch {
			b.StopTimer()
			d.do(submission(batch)) // the queue stays as long as it is
			reports := make([]*logv1.Command, batch)
			for i := range reports {
				reports[i] = d.reported(next)
				if next += 7; next > 600_000 { // of all nodes, each action once
					next -= 599_999
				}
			}
			b.StartTimer()
			d.do(reports...)
		}
	})
	b.Run("submit", func(b *testing.B) {
		d := *full
		for done := 0; done < b.N; done += batch {
			b.StopTimer()
			submits := make([]*logv1.Command, batch)
			for i := range submits {
				submits[i] = submission(1)
			}
			b.StartTimer()
			d.do(submits...)
		}
	})
}

// BenchmarkHeaviestEntry has what costs most in one entry: no entry should take longer
// than 10 ms, since all others wait. One operation is all that is done.
func BenchmarkHeaviestEntry(b *testing.B) {
	for _, c := range []struct {
		name string
		does func(*driver)
	}{
		{"node with 100,000 attempts is lost", loseCoreless},
		{"a turn among 128 jobs with 1,000 each", manyTurns},
		{"reports with 1,000 namespaces queued", manyNamespaces},
		{"a job among 4,000 on 1,024 groups", manyJobs},
		{"trajectory with 4,096 actions closes", largeTrajectory},
		{"4,096 actions start at once", startMany},
		{"reports to the full weight of an entry", heavyReports},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				d := newDriver(b)
				b.StartTimer()
				c.does(d)
				d.worst(b)
			}
		})
	}
}

// measure forgets what the preparations took.
func (d *driver) measure() { d.took = nil }

// loseCoreless loses a node with as many attempts as it takes to exceed any budget.
func loseCoreless(d *driver) { d.loseNode(100_000) }

func (d *driver) loseNode(attempts int) {
	d.register("n", 8)
	d.do(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{Name: "q", Kind: 1, Limit: 1_000_000}}})
	for left := attempts; left > 0; left -= 4000 {
		c := &logv1.SubmitActions{}
		for range min(left, 4000) {
			c.Actions = append(c.Actions, &logv1.Action{AttemptsMax: 1, Spec: make([]byte, 300), Needs: &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: "q", Units: 1}}}})
		}
		d.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}})
		d.settle()
	}
	d.measure()
	n := d.state.NodeByName("n")
	d.do(&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: "n", Incarnation: n.Incarnation}}})
	d.settle()
	if left := d.state.Counts().Running; left > 0 {
		d.Fatalf("%d attempts of the lost node still run", left)
	}
}

func manyTurns(d *driver) {
	const jobs, turns = 128, 1000
	d.do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: 8}}})
	acquire := func(j int) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Job: fmt.Sprint("j", j), Deployment: "actor", ExpectNs: int64(time.Second)}}}
	}
	for j := range jobs {
		d.do(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Name: fmt.Sprint("j", j), Nodes: 8, Backfill: true}}})
		d.settle()
		d.do(slices.Repeat([]*logv1.Command{acquire(j)}, turns)...)
	}
	d.measure()
	for j := range jobs {
		d.do(acquire(j))
		t := d.state.Turn(d.state.NodeGroupByName("g").Turn)
		d.do(&logv1.Command{Verb: &logv1.Command_EndTurn{EndTurn: &logv1.EndTurn{TurnId: uint64(t.ID), Token: t.Token, Reason: endYielded}}})
	}
}

func manyNamespaces(d *driver) {
	const namespaces, actions = 1000, 10_000
	d.registerNodes(20, 60)
	for i := range namespaces {
		d.do(&logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: fmt.Sprint("ns", i)}}})
	}
	for i := range actions {
		c := submission(2)
		c.GetSubmitActions().Namespace = fmt.Sprint("ns", i%namespaces)
		d.do(c)
	}
	d.measure()
	for i := range 1000 {
		d.do(d.reported(state.ActionID(i + 1)))
	}
}

func manyJobs(d *driver) {
	const groups, jobs = 1024, 4000
	for i := range groups {
		d.do(&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: fmt.Sprint("g", i), Nodes: 8}}})
	}
	submit := func(j int) {
		d.do(submitBench(fmt.Sprint("j", j), 270+int64(j%3)))
		d.settle()
	}
	for j := range jobs - 50 {
		submit(j)
	}
	d.measure()
	for j := range 50 {
		submit(jobs + j)
	}
}

// fillTrajectory has as many actions in trajectory 1 as it may have, on a node of 4 cores.
func (d *driver) fillTrajectory() {
	d.Helper()
	d.register("n", 4)
	d.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{}}})
	c := submission(trajectoryLiveMax)
	for _, a := range c.GetSubmitActions().Actions {
		a.TrajectoryId = 1
	}
	d.do(c)
	d.settle()
}

func largeTrajectory(d *driver) {
	d.fillTrajectory()
	d.measure()
	d.do(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: 1}}})
	d.settle()
}

func startMany(d *driver) {
	d.registerNodes(200, 60)
	d.measure()
	d.do(submission(EntryWeight))
	d.settle()
	if c := d.state.Counts(); c.Running != EntryWeight {
		d.Fatalf("%d of %d run", c.Running, EntryWeight)
	}
}

func heavyReports(d *driver) {
	d.registerNodes(200, 60)
	for range 5 {
		d.do(submission(EntryWeight))
		d.settle()
	}
	d.measure()
	d.do(d.reports(EntryWeight / ReportWeight)...)
	d.settle()
}
