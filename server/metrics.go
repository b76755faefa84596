package server

import (
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"rota/api/intake"
	"rota/fsm/state"
	"rota/internal/telemetry"
	"rota/server/replica"
)

// metrics are what a server tells Prometheus. What state tells is read when asked for, so
// it costs nothing otherwise.
type metrics struct {
	registry      *prometheus.Registry
	calls         *prometheus.HistogramVec
	renewals      *prometheus.CounterVec
	predicted     *prometheus.CounterVec
	leaderChanges prometheus.Counter
	commits       prometheus.Histogram
	applies       prometheus.Histogram
	appends       prometheus.Histogram
	commands      prometheus.Counter
	unread        prometheus.Counter
	meter         *meter
	decoders      []decoder
}

// decoder is what requests of a kind share while they are decoded.
type decoder struct {
	from   string
	budget *intake.Budget
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry:      telemetry.NewRegistry(s.cfg.Version),
		calls:         telemetry.RPCDuration.Durations(),
		renewals:      telemetry.LeaseRenewals.Counters(),
		predicted:     telemetry.PredictorCalls.Counters(),
		leaderChanges: telemetry.LeaderChanges.Counter(),
		commits:       telemetry.CommitDuration.Duration(),
		applies:       telemetry.ApplyDuration.Duration(),
		appends:       telemetry.FsyncDuration.Duration(),
		commands:      telemetry.AppliedCommands.Counter(),
		unread:        telemetry.UnreadAnswers.Counter(),
		meter:         newMeter(s.machine),
		decoders:      []decoder{{"servers", s.peers}},
	}
	m.registry.MustRegister(m.calls, m.renewals, m.predicted, m.leaderChanges, m.commits, m.applies, m.appends, m.commands, m.unread,
		telemetry.Source(decodingDefs, m.decoding),
		telemetry.Source(ownDefs, func(emit emitter) { own(s, emit) }),
		telemetry.Source(stateDefs(), func(emit emitter) { readState(s.machine.Fork(), s.logTime(), emit) }))
	m.meter.register(m.registry)
	return m
}

// emitter takes a sample.
type emitter = func(prometheus.Metric)

// timings tell what Raft and the disk take.
func (m *metrics) timings() replica.Timings {
	return replica.Timings{
		Append:        func(took time.Duration) { m.appends.Observe(took.Seconds()) },
		Commit:        func(took time.Duration) { m.commits.Observe(took.Seconds()) },
		LeaderChanged: m.leaderChanges.Inc,
		Apply: func(commands int, took time.Duration) {
			m.applies.Observe(took.Seconds())
			m.commands.Add(float64(commands))
		},
	}
}

var decodingDefs = []*telemetry.Def{telemetry.DecodingBytes, telemetry.DecodingRefused, telemetry.DecodingBlamed}

func (m *metrics) decoding(emit emitter) {
	for _, d := range m.decoders {
		emit(telemetry.DecodingBytes.Value(float64(d.budget.Used()), d.from))
		emit(telemetry.DecodingRefused.Value(float64(d.budget.Refused()), d.from))
		emit(telemetry.DecodingBlamed.Value(float64(d.budget.Blamed()), d.from))
	}
}

var ownDefs = []*telemetry.Def{
	telemetry.Leader, telemetry.LeaderKnown, telemetry.Term, telemetry.CommitIndex, telemetry.SnapshotIndex,
	telemetry.Quarantined, telemetry.ProposalBytes, telemetry.AgentStreams, telemetry.RouteWatchers,
}

// own is what a server knows of itself.
func own(s *Server, emit emitter) {
	status := s.replica.Status()
	emit(telemetry.Leader.Value(telemetry.One(s.replica.IsLeader())))
	emit(telemetry.LeaderKnown.Value(telemetry.One(status.LeaderID != "")))
	emit(telemetry.Term.Value(float64(status.Term)))
	emit(telemetry.CommitIndex.Value(float64(status.Commit)))
	emit(telemetry.SnapshotIndex.Value(float64(status.SnapshotIndex)))
	emit(telemetry.Quarantined.Value(telemetry.One(status.Quarantined)))
	emit(telemetry.ProposalBytes.Value(float64(status.QueuedBytes)))
	emit(telemetry.AgentStreams.Value(float64(s.streams.Connected())))
	emit(telemetry.RouteWatchers.Value(float64(s.routes.Watching())))
}

// part reads some metrics from a state, at a log time.
type part struct {
	defs []*telemetry.Def
	read func(st *state.State, now int64, emit emitter)
}

var stateParts = []part{countMetrics, nodeMetrics, gpuMetrics, engineMetrics, quotaMetrics, ledgerMetrics, rolloutMetrics, workerMetrics, rewardMetrics, namespaceMetrics}

func stateDefs() (defs []*telemetry.Def) {
	for _, p := range stateParts {
		defs = append(defs, p.defs...)
	}
	return defs
}

// readState reads all of them from one state, which stays as it is meanwhile.
func readState(st *state.State, now int64, emit emitter) {
	for _, p := range stateParts {
		p.read(st, now, emit)
	}
}

var countMetrics = part{
	[]*telemetry.Def{
		telemetry.ActionsQueued, telemetry.ActionsRunning, telemetry.QueueBytes, telemetry.TrajectoriesOpen,
		telemetry.RequestIDs, telemetry.AppliedIndex, telemetry.Revision, telemetry.FeatureLevel, telemetry.Migrations,
	},
	func(st *state.State, _ int64, emit emitter) {
		counts, meta, moves := st.Counts(), st.Meta(), st.MigrationCounts()
		emit(telemetry.ActionsQueued.Value(float64(counts.Queued)))
		emit(telemetry.ActionsRunning.Value(float64(counts.Running)))
		emit(telemetry.QueueBytes.Value(float64(st.QueuedBytes())))
		emit(telemetry.TrajectoriesOpen.Value(float64(counts.OpenTrajectories)))
		emit(telemetry.RequestIDs.Value(float64(st.RequestCount())))
		emit(telemetry.AppliedIndex.Value(float64(meta.Applied)))
		emit(telemetry.Revision.Value(float64(meta.Revision)))
		emit(telemetry.FeatureLevel.Value(float64(meta.Level)))
		emit(telemetry.Migrations.Value(float64(moves.Queued), "queued"))
		emit(telemetry.Migrations.Value(float64(moves.Running), "running"))
		emit(telemetry.Migrations.Value(float64(moves.Ended), "ended"))
	},
}

func (m *metrics) observe(procedure string, code connect.Code, took time.Duration) {
	label := "ok"
	if code != 0 {
		label = code.String()
	}
	m.calls.WithLabelValues(procedure, label).Observe(took.Seconds())
}
