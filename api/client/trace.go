package client

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

// traceKey is the name of the header of W3C Trace Context.
const traceKey = "traceparent"

// WithTraceparent returns a context whose actions are part of the trace that a W3C trace context
// names. A text that names none changes nothing.
func WithTraceparent(ctx context.Context, text string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceKey: text})
}

// inTrace returns specs that are under the span of OpenTelemetry that ctx has, if it has one.
// Those that name another are left as they are.
func inTrace(ctx context.Context, specs []*rotav1.ActionSpec) []*rotav1.ActionSpec {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return specs
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	out := make([]*rotav1.ActionSpec, len(specs))
	for i, spec := range specs {
		if out[i] = spec; spec != nil && spec.Traceparent == "" {
			out[i] = proto.CloneOf(spec)
			out[i].Traceparent = carrier[traceKey]
		}
	}
	return out
}
