package agent

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/clock"
	"rota/internal/telemetry"

	"rota/agent/engine/chunks"
	"rota/agent/plan"
	"rota/agent/tier"
)

// metrics are what an agent tells Prometheus. The rest is read when asked for.
type metrics struct {
	starts, ends, resizes, renewals *prometheus.CounterVec
	phases, pulls                   *prometheus.HistogramVec
	execution, renewal              prometheus.Histogram
	output, pulledBytes, unread     prometheus.Counter
	imagesRemoved, removedBytes     prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		starts: telemetry.AgentStarts.Counters(), ends: telemetry.AgentEnds.Counters(),
		resizes: telemetry.AgentResizes.Counters(), renewals: telemetry.AgentRenewals.Counters(),
		phases: telemetry.AgentPhase.Durations(), execution: telemetry.AgentExecution.Duration(),
		renewal: telemetry.AgentRenewal.Duration(), output: telemetry.AgentOutput.Counter(),
		pulls: telemetry.AgentPulls.Durations(), pulledBytes: telemetry.AgentPulled.Counter(),
		imagesRemoved: telemetry.AgentImagesRemoved.Counter(), removedBytes: telemetry.AgentImagesFreed.Counter(),
		unread: telemetry.UnreadAnswers.Counter(),
	}
}

// Phases of the overhead of an agent.
const (
	phaseJournal = "journal"
	phaseStart   = "start"
	phaseReport  = "report"
)

// took notes how long a phase took that began at a time.
func (m *metrics) took(phase string, began time.Time) {
	m.phases.WithLabelValues(phase).Observe(time.Since(began).Seconds())
}

// result is the label of something that worked or did not.
func result(err error) string {
	if err != nil {
		return "failed"
	}
	return "ok"
}

// pulled notes a pull of an image that has ended.
func (m *metrics) pulled(bytes uint64, took time.Duration, err error) {
	m.pulls.WithLabelValues(result(err)).Observe(took.Seconds())
	m.pulledBytes.Add(float64(bytes))
}

// imageRemoved notes an image that nothing used, and what its removal has freed.
func (m *metrics) imageRemoved(bytes uint64) {
	m.imagesRemoved.Inc()
	m.removedBytes.Add(float64(bytes))
}

// renewed notes an answer to a renewal of the lease.
func (m *metrics) renewed(fenced bool, began time.Time) {
	if fenced {
		m.renewals.WithLabelValues("fenced").Inc()
		return
	}
	m.renewals.WithLabelValues("ok").Inc()
	m.renewal.Observe(time.Since(began).Seconds())
}

// ended notes how an attempt ended, once a server has confirmed the report.
func (m *metrics) ended(e plan.Exit) {
	m.ends.WithLabelValues(reasonOf(e)).Inc()
	if e.Exec > 0 {
		m.execution.Observe(e.Exec.Seconds())
	}
}

// reasonOf is the label of the reason of an end.
func reasonOf(e plan.Exit) string {
	return strings.ToLower(strings.TrimPrefix(rotav1.EndReason(e.Reason).String(), "END_REASON_"))
}

// registry has all metrics of the agent.
func (a *agent) registry() *prometheus.Registry {
	r, m := telemetry.NewRegistry(a.cfg.Version), a.metrics
	r.MustRegister(m.starts, m.ends, m.resizes, m.renewals, m.phases, m.execution, m.renewal, m.output, m.pulls, m.pulledBytes,
		m.imagesRemoved, m.removedBytes, m.unread,
		telemetry.Source([]*telemetry.Def{
			telemetry.AgentCores, telemetry.AgentMemory, telemetry.AgentGPUs, telemetry.AgentAttempts, telemetry.AgentCoresInUse,
			telemetry.AgentJournal, telemetry.AgentSessionOpen, telemetry.AgentLease, telemetry.AgentServers,
			telemetry.AgentSupervisor, telemetry.AgentEngines, telemetry.AgentSickGPUs, telemetry.AgentDiskFree, telemetry.AgentDiskLow,
			telemetry.AgentImageBytes,
		}, a.readMetrics),
		telemetry.Source([]*telemetry.Def{
			telemetry.AgentCacheBytes, telemetry.AgentCacheMax, telemetry.AgentCacheReads, telemetry.AgentCacheLost,
		}, a.readCache))
	return r
}

func (a *agent) readMetrics(emit func(prometheus.Metric)) {
	load, engines := a.load(), a.engineStates()
	emit(telemetry.AgentCores.Value(float64(a.inv.Cores())))
	emit(telemetry.AgentMemory.Value(float64(a.inv.MemoryBytes)))
	gpus := 0
	if a.inv.GPUs != nil {
		gpus = a.inv.GPUs.Count
	}
	emit(telemetry.AgentGPUs.Value(float64(gpus)))
	for phase, n := range load.Attempts {
		emit(telemetry.AgentAttempts.Value(float64(n), plan.PhaseNames[phase]))
	}
	emit(telemetry.AgentCoresInUse.Value(float64(load.Cores)))
	emit(telemetry.AgentJournal.Value(float64(a.journal.Size())))
	emit(telemetry.AgentSessionOpen.Value(telemetry.One(load.Registered)))
	emit(telemetry.AgentLease.Value(float64(load.LeaseNS) / 1e9))
	emit(telemetry.AgentServers.Value(float64(a.servers.count())))
	emit(telemetry.AgentSupervisor.Value(telemetry.One(load.Connected)))
	for s := chunks.StateWaiting; s <= chunks.StateFailed; s++ {
		name := strings.ToLower(strings.TrimPrefix(rotav1.EngineState(s).String(), "ENGINE_STATE_"))
		emit(telemetry.AgentEngines.Value(float64(engines[s]), name))
	}
	sick := 0
	if a.gpus != nil {
		sick = a.gpus.sickCount()
	}
	emit(telemetry.AgentSickGPUs.Value(float64(sick)))
	free, low := a.disk.space()
	emit(telemetry.AgentDiskFree.Value(float64(free)))
	emit(telemetry.AgentDiskLow.Value(telemetry.One(low)))
	if a.images != nil {
		emit(telemetry.AgentImageBytes.Value(float64(a.images.Bytes())))
	}
}

func (a *agent) readCache(emit func(prometheus.Metric)) {
	if a.kv == nil {
		return
	}
	st := a.kv.store.Stat()
	emit(telemetry.AgentCacheBytes.Value(float64(st.MemoryBytes), "memory"))
	emit(telemetry.AgentCacheMax.Value(float64(st.MemoryBytesMax), "memory"))
	if st.Disk != tier.DiskNone {
		emit(telemetry.AgentCacheBytes.Value(float64(st.DiskBytes), "disk"))
		emit(telemetry.AgentCacheMax.Value(float64(st.DiskBytesMax), "disk"))
	}
	emit(telemetry.AgentCacheReads.Value(float64(st.MemoryHits), "memory"))
	emit(telemetry.AgentCacheReads.Value(float64(st.DiskHits), "disk"))
	emit(telemetry.AgentCacheReads.Value(float64(st.Misses), "none"))
	emit(telemetry.AgentCacheLost.Value(float64(st.Evicted)))
}

func (a *agent) load() (load plan.Load) {
	a.driver.read(func(p *plan.Plan) { load = p.Load(clock.Boottime()) })
	return load
}

// engineStates counts the engines of the node by state.
func (a *agent) engineStates() (counts [chunks.StateFailed + 1]int) {
	a.driver.mu.Lock()
	defer a.driver.mu.Unlock()
	for _, e := range a.driver.engineList {
		counts[e.State]++
	}
	return counts
}
