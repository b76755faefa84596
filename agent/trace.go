package agent

import (
	"sync"
	"time"

	"rota/agent/plan"
	"rota/internal/telemetry/tracing"
)

// traces are the spans of attempts, from the assignment until a server has confirmed the end. An
// agent that starts anew does not know those of the agent before.
type traces struct {
	tracer *tracing.Tracer
	mu     sync.Mutex
	spans  map[plan.Key]*traced
}

// traced is an attempt, and when its command started.
type traced struct {
	span    tracing.Span
	started time.Time
}

func newTraces(t *tracing.Tracer) *traces {
	return &traces{tracer: t, spans: map[plan.Key]*traced{}}
}

// begin begins the span of an attempt under the context of its assignment, and returns the
// context that the command finds.
func (t *traces) begin(key plan.Key, parent, node string) string {
	if t.tracer == nil || parent == "" {
		return parent
	}
	span := t.tracer.Continue(parent, "attempt", time.Now())
	span.Set("rota.action", key.Action)
	span.Set("rota.attempt", uint64(key.Attempt))
	span.SetText("rota.node", node)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans[key] = &traced{span: span}
	return span.Context()
}

// startTook notes that the supervisor has started the attempt.
func (t *traces) startTook(key plan.Key, from, to time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.spans[key]; a != nil {
		a.started = to
		t.tracer.Record(a.span.Context(), "start", from, to)
	}
}

// reported ends the span of an attempt, whose end a server has confirmed.
func (t *traces) reported(e plan.Exit, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.spans[e.Key]
	if a == nil {
		return
	}
	delete(t.spans, e.Key)
	now := time.Now()
	if !a.started.IsZero() && e.Exec > 0 {
		ended := a.started.Add(e.Exec)
		if ended.After(now) {
			ended = now
		}
		t.tracer.Record(a.span.Context(), "process", a.started, ended)
		t.tracer.Record(a.span.Context(), "report", ended, now)
	}
	a.span.SetText("rota.reason", reason)
	a.span.End(now)
}

// keep ends the spans of other incarnations: their ends are not reported.
func (t *traces) keep(incarnation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, a := range t.spans {
		if key.Incarnation != incarnation {
			a.span.End(time.Now())
			delete(t.spans, key)
		}
	}
}
