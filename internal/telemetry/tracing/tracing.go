package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// queueMax is how many spans wait to be sent. Others are dropped.
	queueMax = 8192
	// closeMax is how long Close waits for what was not sent yet.
	closeMax = 2 * time.Second
	// tracesPath is where OTLP over HTTP takes traces.
	tracesPath = "/v1/traces"
)

// ErrOptions means that spans cannot be sent as asked.
var ErrOptions = errors.New("tracing")

// Options say where spans go.
type Options struct {
	// Endpoint is the URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; the
	// path is /v1/traces if it has none.
	Endpoint string
	// Ratio of the traces that begin here which are recorded, from 0 to 1. Other traces are
	// recorded as their context says.
	Ratio float64
	// Service, Instance and Version are those of the process.
	Service, Instance, Version string
	// Failed is told why spans were not sent. It must not block. Nil: not told.
	Failed func(error)
}

// Tracer makes spans. A nil Tracer makes none, and passes contexts on.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// Open returns a Tracer. It does not connect: a receiver that is not there loses spans only.
func Open(o Options) (*Tracer, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// What was given is not said: it may have a password.
		return nil, fmt.Errorf("%w: the endpoint is not a URL such as http://127.0.0.1:4318", ErrOptions)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) {
		return nil, fmt.Errorf("%w: ratio %v is not from 0 to 1", ErrOptions, o.Ratio)
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Failed))
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(queueMax)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Ratio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.instance.id", o.Instance),
			attribute.String("service.version", o.Version))),
	)
	return &Tracer{p, p.Tracer("rota")}, nil
}

// Close sends what was not sent yet, for at most 2 s.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what is not sent by then is lost
}

// Span is a part of a trace. The zero value is none.
type Span struct {
	span   trace.Span
	parent string
}

// Begin begins a span that began at a time. The parent is the text of a context. Without one a
// trace begins.
func (t *Tracer) Begin(parent, name string, at time.Time) Span {
	if t == nil {
		return Span{parent: parent}
	}
	_, span := t.tracer.Start(parsed(parent), name, trace.WithTimestamp(at))
	return Span{span, parent}
}

// Continue is Begin, but without a parent there is no span.
func (t *Tracer) Continue(parent, name string, at time.Time) Span {
	if parent == "" {
		return Span{}
	}
	return t.Begin(parent, name, at)
}

// Record makes a span that has ended.
func (t *Tracer) Record(parent, name string, from, to time.Time) {
	t.Continue(parent, name, from).End(to)
}

// Context is the text of the span, for its children: that of its parent if nothing is recorded
// here, and empty if it begins a trace that is not recorded.
func (s Span) Context() string {
	if s.span == nil || s.parent == "" && !s.span.SpanContext().IsSampled() {
		return s.parent
	}
	return Text(s.span.SpanContext())
}

// Set notes a number about the span.
func (s Span) Set(key string, value uint64) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int64(key, int64(value)))
	}
}

// SetText notes a text about the span.
func (s Span) SetText(key, value string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// End ends the span at a time.
func (s Span) End(at time.Time) {
	if s.span != nil {
		s.span.End(trace.WithTimestamp(at))
	}
}

// header is the name of the header and of the key of the carrier.
const header = "traceparent"

// parsed is a context with the span that a text names.
func parsed(text string) context.Context {
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: text})
}

// Valid reports whether a text is a context of W3C Trace Context.
func Valid(text string) bool { return trace.SpanContextFromContext(parsed(text)).IsValid() }

// Text is the text of a context.
func Text(c trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), c), carrier)
	return carrier[header]
}
