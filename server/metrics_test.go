package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// metered is a state machine whose events are counted.
type metered struct {
	testing.TB
	machine  *fsm.Machine
	meter    *meter
	registry *prometheus.Registry
	index    uint64
	now      int64
}

func newMetered(t testing.TB) *metered {
	t.Helper()
	m := &metered{TB: t, registry: prometheus.NewRegistry(), now: int64(time.Second)}
	m.machine = fsm.New(fsm.Options{OnEffects: func(effects []fsm.Effect) {
		for _, e := range effects {
			if e.Kind == fsm.EffectRestored {
				m.meter.notify(true)
			}
		}
	}})
	m.meter = newMeter(m.machine)
	m.meter.register(m.registry)
	m.registry.MustRegister(telemetry.Source(stateDefs(), func(emit emitter) { readState(m.machine.Fork(), m.now, emit) }))
	m.do(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "c", Level: uint32(m.machine.LevelMax()), Settings: &logv1.Settings{QueueActionsMax: 1 << 24, QueueBytesMax: 1 << 40},
	}}})
	return m
}

// do applies an entry a second later. No command may be refused.
func (m *metered) do(commands ...*logv1.Command) []*logv1.Result {
	m.Helper()
	m.index++
	m.now += int64(time.Second)
	data, err := (&logv1.Entry{TimeNs: m.now, Commands: commands}).MarshalVT()
	if err != nil {
		m.Fatal(err)
	}
	results, ok := m.machine.Apply(&raft.Log{Index: m.index, Data: data}).([]*logv1.Result)
	if !ok {
		m.Fatal("not applied")
	}
	for _, r := range results {
		if r.Refusal != nil {
			m.Fatal(r.Refusal)
		}
	}
	return results
}

// drain counts all events.
func (m *metered) drain() {
	for m.meter.step() {
	}
}

func registerNode(name string, cores int) *logv1.Command {
	cpus := make([]uint32, cores)
	for c := range cpus {
		cpus[c] = uint32(c)
	}
	return &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
		Name: name, JournalId: "j", MemoryBytes: 64 << 30, NumaNodes: []*logv1.NumaNode{{Cpus: cpus}},
	}}}
}

// submit submits actions that may run twice.
func submit(n int) *logv1.Command {
	s := &logv1.SubmitActions{}
	for range n {
		s.Actions = append(s.Actions, &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 2, Spec: []byte("s")})
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: s}}
}

// report ends the first attempt of an action, which ran for half a second.
func report(node string, incarnation, action uint64) *logv1.Command {
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: node, Incarnation: incarnation, Reports: []*logv1.AttemptReport{{
			ActionId: action, Attempt: 1, Reason: uint32(state.EndExited), ExecNs: int64(time.Second / 2),
		}},
	}}}
}

// TestTheMeterCountsWhatEntriesDid: two actions, one of which waits for the other; then the node
// is lost under the second.
func TestTheMeterCountsWhatEntriesDid(t *testing.T) {
	m := newMetered(t)
	incarnation := m.do(registerNode("n0", 1))[0].Incarnation
	m.do(submit(2))
	m.do(report("n0", incarnation, 1))
	m.do(&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: "n0", Incarnation: incarnation}}})
	m.drain()
	want := `
# HELP rota_actions_ended_total Ended actions, by final state and reason.
# TYPE rota_actions_ended_total counter
rota_actions_ended_total{reason="exited",state="succeeded"} 1
# HELP rota_actions_requeued_total Actions that wait again because an attempt was lost.
# TYPE rota_actions_requeued_total counter
rota_actions_requeued_total{pool="default"} 1
# HELP rota_actions_submitted_total Submitted actions.
# TYPE rota_actions_submitted_total counter
rota_actions_submitted_total{pool="default"} 2
# HELP rota_attempts_started_total Attempts that were granted a node: the decisions to start something.
# TYPE rota_attempts_started_total counter
rota_attempts_started_total{pool="default"} 2
# HELP rota_cores Cores of nodes that are up.
# TYPE rota_cores gauge
rota_cores{pool="default"} 0
# HELP rota_events_missed_total Events that these counters missed: they were dropped from the state before they were counted, or came with a snapshot.
# TYPE rota_events_missed_total counter
rota_events_missed_total 0
# HELP rota_nodes Nodes, by state: up, draining (up, but takes no new work) or down.
# TYPE rota_nodes gauge
rota_nodes{pool="default",state="down"} 1
rota_nodes{pool="default",state="draining"} 0
rota_nodes{pool="default",state="up"} 0
# HELP rota_nodes_expired_total Nodes that were given up: their lease ended, or their agent registered as another.
# TYPE rota_nodes_expired_total counter
rota_nodes_expired_total 1
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "rota_actions_ended_total", "rota_actions_requeued_total",
		"rota_actions_submitted_total", "rota_attempts_started_total", "rota_nodes", "rota_nodes_expired_total", "rota_cores", "rota_events_missed_total"); err != nil {
		t.Error(err)
	}
	// The first action waited for nothing and ran for 0.5 of 1 s; the second waited for 1 s.
	for phase, want := range map[string]struct {
		count uint64
		sum   float64
	}{"queue": {2, 1}, "execution": {1, 0.5}, "overhead": {1, 0.5}} {
		count, sum := m.histogram("rota_action_phase_duration_seconds", phase)
		if count != want.count || sum != want.sum {
			t.Errorf("%s: %d observations, sum %v; want %v", phase, count, sum, want)
		}
	}
}

// histogram returns the count and the sum of a histogram with one label.
func (m *metered) histogram(name, label string) (count uint64, sum float64) {
	m.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		m.Fatal(err)
	}
	for _, f := range families {
		for _, v := range f.Metric {
			if f.GetName() == name && v.Label[0].GetValue() == label {
				return v.Histogram.GetSampleCount(), v.Histogram.GetSampleSum()
			}
		}
	}
	return 0, 0
}

// TestTheMeterSkipsHistory: entries of the log of an earlier process, and snapshots.
func TestTheMeterSkipsHistory(t *testing.T) {
	m := newMetered(t)
	m.meter.from = 3
	m.do(registerNode("n0", 4))
	m.do(submit(2))
	m.drain()
	m.do(submit(3))
	m.drain()
	if got := testutil.ToFloat64(m.meter.submitted.WithLabelValues("default")); got != 3 {
		t.Errorf("%v submissions are counted, want those after entry 3", got)
	}
	m.do(submit(5))
	m.meter.notify(true)
	m.drain()
	if missed := testutil.ToFloat64(m.meter.missed); missed < 5 {
		t.Errorf("%v events are said to be missed", missed)
	}
	m.do(submit(1))
	m.drain()
	if got := testutil.ToFloat64(m.meter.submitted.WithLabelValues("default")); got != 4 {
		t.Errorf("%v submissions are counted after a snapshot", got)
	}
}

// TestTheMeterCountsForThePoolsOfARestoredState: the same ID may be another pool there.
func TestTheMeterCountsForThePoolsOfARestoredState(t *testing.T) {
	to := func(pool string) *logv1.Command {
		c := submit(1)
		c.GetSubmitActions().Actions[0].Pool = pool
		return c
	}
	node := func(pool string) *logv1.Command {
		c := registerNode("n0", 4)
		c.GetRegisterNode().Pool = pool
		return c
	}
	m, backup := newMetered(t), newMetered(t)
	m.do(node("old"))
	m.do(to("old"))
	m.drain()
	backup.do(node("new"))
	backup.do(to("new"))
	m.meter.machine = backup.machine
	m.meter.notify(true)
	m.drain()
	backup.do(to("new"))
	m.drain()
	for pool, want := range map[string]float64{"old": 1, "new": 1} {
		if got := testutil.ToFloat64(m.meter.submitted.WithLabelValues(pool)); got != want {
			t.Errorf("%v submissions are counted for pool %q, want %v", got, pool, want)
		}
	}
}

// TestWhatStateTellsIsConventional has Prometheus look at every metric that is read from state.
func TestWhatStateTellsIsConventional(t *testing.T) {
	m := newMetered(t)
	m.do(registerNode("n0", 4))
	m.do(submit(8))
	m.drain()
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestTheMeterRunsBesideApply until its context ends.
func TestTheMeterRunsBesideApply(t *testing.T) {
	m := newMetered(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.meter.run(ctx) }()
	m.do(submit(meterBatch * 3))
	m.meter.notify(false)
	for testutil.ToFloat64(m.meter.submitted.WithLabelValues("default")) < meterBatch*3 {
		select {
		case <-done:
			t.Fatal("the meter ended")
		default:
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	<-done
}

// BenchmarkScrape reads the metrics of a state with 10,000 nodes of 128 cores and 100,000
// running actions, over HTTP.
func BenchmarkScrape(b *testing.B) {
	m := newMetered(b)
	for i := range 10_000 {
		m.do(registerNode(fmt.Sprint("n", i), 128))
	}
	for range 25 {
		m.do(submit(4000))
	}
	for m.busy() {
		m.do(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	}
	var counts state.Counts
	m.machine.View(func(st *state.State) { counts = st.Counts() })
	if counts.NodesUp != 10_000 || counts.Running != 100_000 {
		b.Fatalf("%+v", counts)
	}
	m.drain()
	srv := httptest.NewServer(telemetry.MetricsHandler(m.registry))
	defer srv.Close()
	for b.Loop() {
		resp, err := http.Get(srv.URL)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

func (m *metered) busy() (yes bool) {
	m.machine.View(func(st *state.State) { yes = st.HasWork() })
	return yes
}

// BenchmarkMeter counts the events of an action: submission and grant.
func BenchmarkMeter(b *testing.B) {
	m := newMetered(b)
	for i := range 100 {
		m.do(registerNode(fmt.Sprint("n", i), 256))
	}
	m.do(submit(4000))
	var first uint64
	m.machine.View(func(st *state.State) { first = st.FirstRevision() })
	for b.Loop() {
		m.meter.seen = first - 1
		m.drain()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4000, "ns/action")
}
