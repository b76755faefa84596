package bench

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"rota/api/httpx"
	"rota/internal/need"
)

func TestPaddedSpecHasTheSize(t *testing.T) {
	for _, size := range []int{100, 150, 300, 4096} {
		if got := paddedSpec(size).SizeVT(); got < size || got > size+2 {
			t.Errorf("asked for %d bytes, got %d", size, got)
		}
	}
}

func TestQuantiles(t *testing.T) {
	list := []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond}
	p50, p99, most := quantiles(list)
	if p50 != 2 || p99 != 10 || most != 10 {
		t.Errorf("quantiles %v %v %v, want 2 10 10", p50, p99, most)
	}
}

func TestLoadCountsOnlyTheMeasuredTime(t *testing.T) {
	var calls atomic.Int64
	r, err := load(t.Context(), "calls", 2, time.Second, func(context.Context, int) (int, error) {
		calls.Add(1)
		time.Sleep(5 * time.Millisecond)
		return 3, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Count == 0 || r.Count%3 != 0 || int64(r.Count) >= 3*calls.Load() {
		t.Errorf("counted %d of %d calls of 3, warm-up included", r.Count, calls.Load())
	}
}

func TestLoadFailsWithItsCalls(t *testing.T) {
	broken := errors.New("broken")
	_, err := load(t.Context(), "calls", 4, time.Second, func(context.Context, int) (int, error) { return 0, broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the call", err)
	}
}

// The ceiling answers what a server answers: an ID for each action.
func TestNullServerAnswers(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpx.NewServer(NullHandler())
	server.Start()
	defer server.Close()
	addr := server.Listener.Addr().String()
	if err := waitHTTP(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	n, err := unaryCall(SubmitOptions{Connections: 1}, addr, paddedSpec(300))(t.Context(), 0)
	if n != 1 || err != nil {
		t.Errorf("submitted %d, %v; want 1", n, err)
	}
}

// Three real members on loopback, through the real load generator.
func TestEtcd(t *testing.T) {
	need.Tool(t, "etcd")
	need.Tool(t, "../../../bin/etcd-bench")
	o := EtcdOptions{Etcd: "etcd", Load: "../../../bin/etcd-bench",
		Submit: SubmitOptions{Duration: time.Second, Size: 300, Connections: 4}}
	r, err := o.etcdOnce(t.Context(), 16)
	if err != nil {
		t.Fatal(err)
	}
	if r.Count == 0 || r.Submitters != 16 {
		t.Errorf("measured %+v", r)
	}
	t.Logf("%.0f puts per second", r.PerSecond)
}
