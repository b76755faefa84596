package receiver

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was received.
type Span struct {
	Trace, ID, Parent string // in hexadecimal
	Name, Service     string
	StartNS, EndNS    uint64 // Unix time
}

// Receiver keeps spans.
type Receiver struct {
	URL   string
	mu    sync.Mutex
	spans []Span
}

// New starts a receiver, until the test ends.
func New(t testing.TB) *Receiver {
	r := &Receiver{}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	r.URL = srv.URL
	return r
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = zip
	}
	data, err := io.ReadAll(body)
	var m collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &m)
	}
	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, "not a trace", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range m.ResourceSpans {
		service := ""
		for _, a := range of.Resource.GetAttributes() {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{
					hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId),
					s.Name, service, s.StartTimeUnixNano, s.EndTimeUnixNano,
				})
			}
		}
	}
}

// Spans are those that were received of a trace, by name.
func (r *Receiver) Spans(trace string) map[string]Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	byName := map[string]Span{}
	for _, s := range r.spans {
		if s.Trace == trace {
			byName[s.Name] = s
		}
	}
	return byName
}

// Traces are the traces of which spans were received.
func (r *Receiver) Traces() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]bool{}
	for _, s := range r.spans {
		all[s.Trace] = true
	}
	return all
}
