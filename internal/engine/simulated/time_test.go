package simulated

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rota/internal/engine/model"
)

// pipes is a listener without sockets, for bubbles in which time is simulated.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

var errClosed = errors.New("closed")

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, errClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, errClosed
	}
}

// bubble runs an engine where time passes only when nothing else can happen.
func bubble(t *testing.T, flags []string, body func(t *testing.T, a *api)) {
	synctest.Test(t, func(t *testing.T) {
		e, err := newEngine(options(t, flags...), nil)
		if err != nil {
			t.Fatal(err)
		}
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { _ = e.serve(ctx, p) }) // the listener is closed in the end
		transport := &http.Transport{DialContext: p.dial, DisableKeepAlives: true}
		a := &api{t: t, url: "http://engine", client: &http.Client{Transport: transport}}
		synctest.Wait() // it is loaded
		body(t, a)
		stop()
		transport.CloseIdleConnections()
		serving.Wait()
	})
}

// The HTTP server takes the time that the model says, also if it runs faster than real time, and
// the latencies of many requests are those of the model in virtual time.
func TestRealTimeIsModelTime(t *testing.T) {
	const speed = 4
	flags := []string{"--profile=qwen3-14b-h800-tp2", "--speed=4", "--slots=8", "--preemption=keep", "--dialect=sglang"}
	rng := rand.New(rand.NewPCG(3, 4))
	var asked []model.Request
	var at []int64 // ns of the model
	now := int64(0)
	for i := range 40 {
		now += rng.Int64N(400) * int64(time.Millisecond)
		asked = append(asked, model.Request{
			ID: uint64(i + 1), Key: uint64(i + 1), Prompt: 1 + rng.Int64N(3000), Output: 1 + rng.Int64N(500), Priority: rng.Int64N(5),
		})
		at = append(at, now)
	}
	want := virtual(t, options(t, flags...), asked, at)
	got := make([]time.Duration, len(asked))
	bubble(t, flags, func(t *testing.T, a *api) {
		var all sync.WaitGroup
		began := time.Now()
		for i, r := range asked {
			all.Go(func() {
				time.Sleep(time.Until(began.Add(time.Duration(at[i] / speed))))
				sent := time.Now()
				// No two prompts begin alike.
				prompt := slices.Repeat([]uint32{uint32(20_000 + i)}, int(r.Prompt))
				a.ask(completionsPath, map[string]any{"prompt": prompt, "max_tokens": r.Output, "ignore_eos": true, "priority": r.Priority})
				got[i] = time.Since(sent) * speed
			})
		}
		all.Wait()
	})
	var sumGot, sumWant time.Duration
	for i := range got {
		sumGot, sumWant = sumGot+got[i], sumWant+want[i]
	}
	// Requests reach the server without delay in a bubble, so only rounding differs. It may make
	// a request miss a step, which then moves others.
	if off := (sumGot - sumWant).Abs(); off > sumWant/100 {
		t.Errorf("requests took %v together, want %v", sumGot, sumWant)
	}
	for i := range got {
		if off := (got[i] - want[i]).Abs(); off > want[i]/10+100*time.Millisecond {
			t.Errorf("request %d took %v, want %v", i, got[i], want[i])
		}
	}
}

// virtual is how long requests take in the model alone.
func virtual(t *testing.T, o Options, asked []model.Request, at []int64) (took []time.Duration) {
	t.Helper()
	c, err := o.configuration()
	if err != nil {
		t.Fatal(err)
	}
	e, err := model.New(c)
	if err != nil {
		t.Fatal(err)
	}
	took = make([]time.Duration, len(asked))
	see := func(events []model.Event) {
		for _, ev := range events {
			if ev.Kind == model.Finished {
				took[ev.ID-1] = time.Duration(ev.AtNS - at[ev.ID-1])
			}
		}
	}
	for i, r := range asked {
		if err := e.Submit(at[i], r); err != nil {
			t.Fatal(err)
		}
		see(e.Advance(at[i], nil))
	}
	for next, ok := e.NextEvent(); ok; next, ok = e.NextEvent() {
		see(e.Advance(next, nil))
	}
	return took
}

// Each dialect has its own meaning of priorities: requests that wait for the one slot start in
// that order.
func TestPrioritiesAreThoseOfTheDialect(t *testing.T) {
	for dialect, want := range map[string]string{VLLM: "1 2 3", SGLang: "3 2 1", OpenAI: "2 3 1"} {
		t.Run(dialect, func(t *testing.T) {
			bubble(t, []string{"--step=1s", "--slots=1", "--dialect=" + dialect}, func(t *testing.T, a *api) {
				var mu sync.Mutex
				var order []string
				var all sync.WaitGroup
				for i, priority := range []string{"0", "2", "3", "1"} { // the first one has the slot
					all.Go(func() {
						time.Sleep(time.Duration(i) * 10 * time.Millisecond)
						a.must("POST", completionsPath, `{"prompt":"a","max_tokens":3,"ignore_eos":true,"priority":`+priority+`}`)
						mu.Lock()
						defer mu.Unlock()
						order = append(order, priority)
					})
				}
				all.Wait()
				if got := strings.Join(order[1:], " "); got != want {
					t.Errorf("they ended in the order %s, want %s", got, want)
				}
			})
		})
	}
}

// A stream gets its tokens when the model has them.
func TestStreamsComeInModelTime(t *testing.T) {
	bubble(t, []string{"--step=100ms"}, func(t *testing.T, a *api) {
		began := time.Now()
		parts := a.streamed(completionsPath, map[string]any{"prompt": "a", "max_tokens": 20, "ignore_eos": true})
		if took := time.Since(began); len(parts) != 20 || took < 2*time.Second || took > 2*time.Second+20*tick {
			t.Errorf("%d parts in %v, want 20 in 2 s", len(parts), took)
		}
	})
}

// A slow engine takes longer, and a client that goes away gives its slot back.
func TestSlownessAndClientsThatLeave(t *testing.T) {
	bubble(t, []string{"--step=100ms", "--slots=1"}, func(t *testing.T, a *api) {
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		req, err := http.NewRequestWithContext(ctx, "POST", a.url+completionsPath, strings.NewReader(`{"prompt":"a","max_tokens":1000,"ignore_eos":true}`))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := a.client.Do(req); err == nil {
			resp.Body.Close()
			t.Fatal("a request that needs 100 s is answered within 1 s")
		}
		a.must("POST", "/simulated/misbehave?what=slow=5", "")
		began := time.Now()
		a.must("POST", completionsPath, `{"prompt":"a","max_tokens":10,"ignore_eos":true}`)
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("10 steps of 100 ms took %v at a fifth of the speed", took)
		}
	})
}
