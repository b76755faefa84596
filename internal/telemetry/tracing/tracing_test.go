package tracing_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"rota/internal/telemetry/tracing"
	"rota/internal/telemetry/tracing/receiver"
)

const (
	parent    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00"
)

func open(t testing.TB, url string, ratio float64) *tracing.Tracer {
	t.Helper()
	tr, err := tracing.Open(tracing.Options{Endpoint: url, Ratio: ratio, Service: "s", Instance: "i", Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestSpansLinkUpAndArrive(t *testing.T) {
	r := receiver.New(t)
	tr := open(t, r.URL, 1)
	now := time.Now()
	a := tr.Begin(parent, "a", now)
	b := tr.Continue(a.Context(), "b", now)
	tr.Record(b.Context(), "c", now, now.Add(time.Second))
	b.End(now)
	a.End(now)
	root := tr.Begin("", "root", now)
	root.End(now)
	tr.Continue("", "none", now).End(now)
	tr.Begin(unsampled, "unsampled", now).End(now)
	tr.Close()
	spans := r.Spans(parent[3:35])
	if len(spans) != 3 || spans["a"].Parent != parent[36:52] || spans["b"].Parent != spans["a"].ID || spans["c"].Parent != spans["b"].ID {
		t.Errorf("%+v", spans)
	}
	if c := spans["c"]; c.EndNS-c.StartNS != uint64(time.Second) || c.Service != "s" {
		t.Errorf("%+v", c)
	}
	if len(r.Traces()) != 2 || len(r.Spans(root.Context()[3:35])) != 1 {
		t.Errorf("traces %v, want that of the parent and that of the root", r.Traces())
	}
}

func TestContextsArePassedOnWithoutATracer(t *testing.T) {
	var off *tracing.Tracer
	for _, text := range []string{"", parent} {
		s := off.Begin(text, "x", time.Now())
		s.Set("k", 1)
		s.End(time.Now())
		if s.Context() != text {
			t.Errorf("%q became %q", text, s.Context())
		}
	}
	off.Close()
}

// A trace that begins here and is not recorded is none to others; that of a client goes on.
func TestWhatIsNotRecordedHasNoContext(t *testing.T) {
	tr := open(t, receiver.New(t).URL, 0)
	defer tr.Close()
	if got := tr.Begin("", "root", time.Now()).Context(); got != "" {
		t.Errorf("context %q", got)
	}
	if got := tr.Begin(unsampled, "x", time.Now()).Context(); !strings.HasPrefix(got, unsampled[:36]) || !strings.HasSuffix(got, "-00") {
		t.Errorf("context %q of %q", got, unsampled)
	}
}

func TestContextsAreChecked(t *testing.T) {
	for text, want := range map[string]bool{
		parent: true, unsampled: true, "": false, "00-x": false, parent[:54]: false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false, strings.ToUpper(parent): false, parent + "\n": false,
	} {
		if tracing.Valid(text) != want {
			t.Errorf("Valid(%q) is %v", text, !want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []tracing.Options{
		{Endpoint: "", Ratio: 1}, {Endpoint: "127.0.0.1:4318", Ratio: 1}, {Endpoint: "ftp://h", Ratio: 1},
		{Endpoint: "http://h", Ratio: 1.5}, {Endpoint: "http://h", Ratio: -1},
	} {
		if _, err := tracing.Open(o); !errors.Is(err, tracing.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestAReceiverThatHangsHoldsUpNothing: far more spans than the queue has room for.
func TestAReceiverThatHangsHoldsUpNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tr := open(t, "http://"+l.Addr().String(), 1)
	for range 50_000 {
		tr.Begin(parent, "x", time.Now()).End(time.Now())
	}
	tr.Close() // gives up
}

func BenchmarkOff(b *testing.B) {
	var off *tracing.Tracer
	now := time.Now()
	for b.Loop() {
		off.Begin("", "x", now).End(now)
	}
}

func BenchmarkNotSampled(b *testing.B) {
	tr := open(b, receiver.New(b).URL, 0)
	defer tr.Close()
	now := time.Now()
	for b.Loop() {
		s := tr.Begin("", "x", now)
		_ = s.Context()
		s.End(now)
	}
}

func BenchmarkSampled(b *testing.B) {
	tr := open(b, receiver.New(b).URL, 1)
	defer tr.Close()
	now := time.Now()
	for b.Loop() {
		s := tr.Begin(parent, "x", now)
		_ = s.Context()
		s.End(now)
	}
}
