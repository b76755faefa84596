package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/telemetry/tracing"
)

// traceHeader is the header of W3C Trace Context.
const traceHeader = "traceparent"

// traceField is the number of ActionSpec.traceparent.
var traceField = (*rotav1.ActionSpec)(nil).ProtoReflect().Descriptor().Fields().ByName("traceparent").Number()

// traces are the spans of the actions of a submission.
type traces struct {
	submit, commit []tracing.Span
}

// traceOf is the trace context of a request, empty if it has none.
func traceOf(ctx context.Context) string {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return ""
	}
	if text := info.RequestHeader().Get(traceHeader); tracing.Valid(text) {
		return text
	}
	return ""
}

// trace begins the spans of the actions of a submission: of each, if the client has one of its
// own for each, under that of the request, or as traces of their own. The actions carry them to
// those who start them. The digest of the request is that of what the client sent: a retry may
// be in another span.
func (s *Server) trace(header string, specs []*rotav1.ActionSpec, command *logv1.Command) *traces {
	if s.Tracer == nil && header == "" {
		return nil
	}
	t, now := &traces{}, time.Now()
	for i, a := range command.GetSubmitActions().GetActions() {
		parent := specs[i].Traceparent
		if parent == "" {
			parent = header
		}
		submit := s.Tracer.Begin(parent, "submit", now)
		context := submit.Context()
		t.submit = append(t.submit, submit)
		t.commit = append(t.commit, s.Tracer.Continue(context, "commit", now))
		if context != "" && context != specs[i].Traceparent {
			// Of a field that is there twice, the last one counts.
			a.Spec = protowire.AppendString(protowire.AppendTag(a.Spec, traceField, protowire.BytesType), context)
		}
	}
	return t
}

// end ends the spans, with the IDs that the actions got; 0: none.
func (t *traces) end(first uint64) {
	if t == nil {
		return
	}
	now := time.Now()
	for i := range t.submit { // one that has ended stays as it is
		if first != 0 {
			t.submit[i].Set("rota.action", first+uint64(i))
		}
		t.commit[i].End(now)
		t.submit[i].End(now)
	}
}
