package server

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/internal/telemetry"
)

// meterBatch is how many events the meter reads under one view, which holds up Apply.
const meterBatch = 256

// meter counts what entries did, from the events that they left in the state. It runs beside
// Apply, which does not wait for it: events that are dropped before it has read them are
// counted as missed.
type meter struct {
	machine  interface{ View(func(*state.State)) }
	kick     chan struct{}
	restored atomic.Bool
	// from is the last entry that the log had when this process started. What was applied up
	// to there is history.
	from uint64
	seen uint64 // revision

	pools    map[state.PoolID]*poolCounters
	expired  prometheus.Counter
	missed   prometheus.Counter
	resized  prometheus.Counter
	turnWait prometheus.Histogram

	submitted, requeued, started, ended, turnsEnded *prometheus.CounterVec

	phases                     *prometheus.HistogramVec
	queue, execution, overhead prometheus.Observer
}

// poolCounters are the counters of a pool.
type poolCounters struct{ submitted, requeued, started prometheus.Counter }

func newMeter(machine interface{ View(func(*state.State)) }) *meter {
	m := &meter{
		machine: machine, kick: make(chan struct{}, 1), pools: map[state.PoolID]*poolCounters{},
		submitted: telemetry.ActionsSubmitted.Counters(), requeued: telemetry.ActionsRequeued.Counters(),
		started: telemetry.AttemptsStarted.Counters(), ended: telemetry.ActionsEnded.Counters(),
		turnsEnded: telemetry.TurnsEnded.Counters(), turnWait: telemetry.TurnWait.Duration(),
		phases: telemetry.ActionPhase.Durations(), expired: telemetry.NodesExpired.Counter(),
		missed: telemetry.EventsMissed.Counter(), resized: telemetry.AttemptsResized.Counter(),
	}
	m.queue, m.execution, m.overhead = m.phases.WithLabelValues("queue"), m.phases.WithLabelValues("execution"), m.phases.WithLabelValues("overhead")
	return m
}

func (m *meter) register(r *prometheus.Registry) {
	r.MustRegister(m.submitted, m.requeued, m.started, m.ended, m.turnsEnded, m.turnWait, m.phases, m.expired, m.missed, m.resized)
}

// notify says that there may be new events; restored, that the state was replaced. It does
// not block.
func (m *meter) notify(restored bool) {
	if restored {
		m.restored.Store(true)
	}
	replace(m.kick, struct{}{})
}

// run counts until ctx is done.
func (m *meter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
			for m.step() {
			}
		}
	}
}

// step counts some events and reports whether there are more.
func (m *meter) step() (more bool) {
	restored := m.restored.Swap(false)
	if restored {
		clear(m.pools) // the pool of an ID may have another name
	}
	m.machine.View(func(st *state.State) {
		newest := st.Meta().Revision
		switch {
		case st.Meta().Applied <= m.from:
			m.seen = newest
		case restored || newest < m.seen || m.seen+1 < st.FirstRevision():
			if newest > m.seen && m.seen > 0 {
				m.missed.Add(float64(newest - m.seen))
			}
			m.seen = newest
		default:
			for to := min(newest, m.seen+meterBatch); m.seen < to; m.seen++ {
				if e, ok := st.Event(m.seen + 1); ok {
					m.count(st, &e)
				}
			}
		}
		more = m.seen < newest
	})
	return more
}

func (m *meter) count(st *state.State, e *state.Event) {
	switch e.Kind {
	case state.EventAction:
		m.action(st, e)
	case state.EventNode:
		if state.NodeState(e.State) == state.NodeDown {
			m.expired.Inc()
		}
	case state.EventTurn:
		m.turn(st, e)
	}
}

// action counts a change of an action. Its row may have changed again since, or be gone.
func (m *meter) action(st *state.State, e *state.Event) {
	a, s := st.Action(state.ActionID(e.Subject)), state.ActionState(e.State)
	if s.Final() {
		m.ended.WithLabelValues(word(rotav1.ActionState(s), "ACTION_STATE_"), word(rotav1.EndReason(e.Reason), "END_REASON_")).Inc()
		if a != nil && a.Result != nil && a.Result.ExecNS > 0 {
			m.execution.Observe(seconds(a.Result.ExecNS))
			m.overhead.Observe(seconds(max(0, a.EndedAt-a.StartedAt-a.Result.ExecNS)))
		}
		return
	}
	if a == nil {
		return
	}
	p := m.pool(st, a.Pool)
	switch {
	case s == state.ActionRunning:
		p.started.Inc()
		if e.Attempt == 1 {
			m.queue.Observe(seconds(max(0, e.Time-a.SubmittedAt)))
		}
	case e.Attempt == 0:
		p.submitted.Inc()
	default:
		p.requeued.Inc()
	}
}

func (m *meter) turn(st *state.State, e *state.Event) {
	t, s := st.Turn(state.TurnID(e.Subject)), state.TurnState(e.State)
	switch {
	case !s.Live():
		m.turnsEnded.WithLabelValues(word(rotav1.TurnState(s), "TURN_STATE_")).Inc()
	case s == state.TurnHeld && t != nil:
		m.turnWait.Observe(seconds(max(0, e.Time-t.ArrivedAt)))
	}
}

func (m *meter) pool(st *state.State, id state.PoolID) *poolCounters {
	p := m.pools[id]
	if p == nil {
		name := ""
		if row := st.Pool(id); row != nil {
			name = row.Name
		}
		p = &poolCounters{m.submitted.WithLabelValues(name), m.requeued.WithLabelValues(name), m.started.WithLabelValues(name)}
		m.pools[id] = p
	}
	return p
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
